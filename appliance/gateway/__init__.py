"""The HTTP edge of the daemon: see README.md in this folder."""
