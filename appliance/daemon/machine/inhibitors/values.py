"""What keeps a machine awake, and how that can fail."""

from __future__ import annotations

from typing import Protocol

REASON = "A model answers a request"
"""Shown by the system to who wonders why the machine does not sleep."""


class NotHeld(Exception):
    """The system did not agree. `lasting`: trying again soon is of no use."""

    def __init__(self, why: str, *, lasting: bool) -> None:
        super().__init__(why)
        self.why = why
        self.lasting = lasting


class Hold(Protocol):
    """The machine is kept awake until `release`."""

    @property
    def how(self) -> str:
        """By what, for the status."""
        ...

    @property
    def but(self) -> str | None:
        """What it does not keep the machine from, and why; None when it is whole."""
        ...

    async def lost(self) -> str:
        """Wait until it ends without having been released; why."""
        ...

    async def release(self) -> None:
        """Let go; also after it was lost, and twice."""
        ...


class Inhibitor(Protocol):
    """One way to keep a machine awake."""

    async def take(self) -> Hold:
        """Raises NotHeld."""
        ...
