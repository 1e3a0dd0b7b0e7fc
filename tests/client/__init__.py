"""Tests of the client, and the stub daemon that the UI tests use, too."""
