"""Tests of appliance.planning."""
