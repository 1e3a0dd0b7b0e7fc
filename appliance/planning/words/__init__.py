"""The reasons of a plan. See README.md."""
