"""How many bytes a candidate takes at each place. See README.md."""
