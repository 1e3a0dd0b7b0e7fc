"""Prompts that outlive their engine."""
