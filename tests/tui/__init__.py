"""Tests of the terminal UI, against the stub daemon of the client's tests."""
