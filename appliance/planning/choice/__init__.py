"""Which way to start the engine. See README.md."""
