"""The HTTP client against servers that are real, and some that are really broken."""
