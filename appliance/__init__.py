"""llama-appliance: a laptop or desktop as a local inference appliance (headless core)."""

__version__ = "0.1.0"
