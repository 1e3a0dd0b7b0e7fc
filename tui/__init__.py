"""The terminal UI: Textual screens over `appliance.client` snapshots. It owns no state of the appliance."""
