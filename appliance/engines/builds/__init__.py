"""Engine builds that are installed here, beside those that are found. See README.md."""
