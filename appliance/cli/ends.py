"""How a command ends when it is neither done nor an error of the product. Imports nothing of ours."""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class OutputFailed(Exception):
    """Our own stdout can't be written: closed (`| head`), or its disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.broken_pipe = isinstance(error, BrokenPipeError)
