"""One look at the machine. See README.md."""
