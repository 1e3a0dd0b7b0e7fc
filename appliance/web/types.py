"""What every module of this room shares: how long it waits, and how a network failure is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client waits, in seconds, and how many redirects it follows."""

    connect_s: float = 20.0
    """For the name and the connection together, and again for the TLS handshake."""
    silence_s: float = 60.0
    """For the head of an answer, and again for each piece of its body."""
    redirects: int = 10


class Broken(Exception):
    """A network failure that may be gone at the next try.

    `why` is a clause for people ("the connection broke"): it may name the host, never a path, query or token.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
