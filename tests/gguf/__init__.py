"""Tests of appliance.gguf."""
