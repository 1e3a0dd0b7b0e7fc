"""What loads and replies taught. See README.md."""
