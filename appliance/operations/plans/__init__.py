"""From a name to a plan. See README.md."""
