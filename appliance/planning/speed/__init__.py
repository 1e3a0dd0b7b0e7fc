"""Tokens per second from the bytes of a token. See README.md."""
