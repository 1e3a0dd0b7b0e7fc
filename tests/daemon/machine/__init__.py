"""What happens to the machine under a running engine."""
