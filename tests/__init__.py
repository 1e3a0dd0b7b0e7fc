"""Tests of the product. Every room has a folder of its own."""
