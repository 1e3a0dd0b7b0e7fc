"""Widgets, one file each. They draw values of `tui.state` and hold no logic of their own."""
