"""What a user can ask for, with or without a daemon."""
