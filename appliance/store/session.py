"""What the connections of one transfer share: what is still to bring, how patient to be, who may ask now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from appliance.errors import ApplianceError, DiskFull
from appliance.store.chunkfile import Unwritable
from appliance.store.patience import Patient, Terms, log
from appliance.store.segments import Span, Window, segment_for
from appliance.store.threads import StopFlag

T = TypeVar("T")
_LOOK_S = 0.5
"""How often an idle connection looks whether it can take over what a slow one has."""


class Session:
    """The state that all connections to one place share, under one lock.

    `gaps` are what is missing, as (first byte, byte after the last). Members are the connections themselves.
    """

    def __init__(self, gaps: Iterable[tuple[int, int]], chunk: int, patient: Patient, terms: Terms) -> None:
        self.halt = StopFlag()
        """Ends the connections of this session."""
        self.changed = threading.Condition()
        self.whole = False
        """Ask for the whole file: this server did not do well with ranges."""
        self.error: BaseException | None = None
        self._terms = terms
        self._patient = patient
        self._chunk = chunk
        self._window = self._made(tuple(gaps))
        self._members: set[object] = set()
        self._allowed = terms.connections
        self._begun = self._proven = False
        self._asked_at: float | None = None
        self._came = 0
        self._alone = False
        self._gate = 0.0

    def _made(self, gaps: tuple[tuple[int, int], ...]) -> Window:
        missing = sum(stop - start for start, stop in gaps)
        segment = segment_for(missing, self._terms.connections, self._chunk, self._terms.limits.segment)
        self._pieces = -(-missing // segment)
        ahead = 2 * segment * self._terms.connections  # a connection that is ahead seldom has to wait
        return Window(gaps, chunk=self._chunk, segment=segment, ahead=ahead)

    # -- who is here

    def open(self, make: Callable[[], T]) -> list[T]:
        """For the owner: the members to start now, made by `make` and counted at once.

        The first call gives one; the next wait until more are useful. Empty when the last one has ended.
        """
        with self.changed:
            more = 0 if self._begun else 1
            self._begun = True
            while self._members and more < 1:
                if self._proven and not self._alone and not self.halt.is_set:
                    self._proven = False
                    more = min(self._allowed, self._pieces) - len(self._members)
                else:
                    self.changed.wait()
            made = [make() for _ in range(more)]
            self._members.update(made)
            return made

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def prove(self, n_bytes: int = 0) -> None:
        """A range is answered as it should be, and `n_bytes` more of it came.

        More connections may open, unless the only one is so fast that they would but cost time: then the
        question is asked again, in case it becomes slower.
        """
        with self.changed:
            if self._proven or self._alone or len(self._members) != 1:
                return
            limits, now = self._terms.limits, time.monotonic()
            self._came += n_bytes
            if self._asked_at is None:
                self._asked_at = now
            elapsed = now - self._asked_at
            if elapsed < limits.settle_s or (limits.settle_s and not n_bytes):
                return
            if self._came < limits.fast * elapsed or not elapsed:
                self._proven = True
                self.changed.notify_all()
            self._asked_at, self._came = now, 0

    def step_down(self, member: object) -> bool:
        """This server is no good for several connections. True: others go on, this one ends.

        False: `member` is the last, and stays the only one.
        """
        with self.changed:
            if len(self._members) > 1:
                self._drop(member)
                return True
            self._alone = True
            return False

    def retire(self, member: object) -> bool:
        """A connection brings nothing while others do. True: it ends. False: it is the last one."""
        with self.changed:
            if len(self._members) < 2:
                return False
            self._drop(member)
            return True

    def leave(self, member: object, error: BaseException | None) -> None:
        """A connection ends. What only it was refused is no end for the others."""
        with self.changed:
            self._drop(member)
            if error is None:
                return
            ours = not isinstance(error, ApplianceError) or isinstance(error, (DiskFull, Unwritable))
            if not ours and self._members:
                log.info("one connection less: %s", error)
                return
            self.error = self.error or error
        self.halt.set()

    def _drop(self, member: object) -> None:
        if member in self._members:
            self._members.remove(member)
            self._allowed = max(1, len(self._members))
            self.changed.notify_all()

    # -- what is to bring

    def take(self, member: object, rate: float) -> Span | None:
        """The next piece for a connection; waits while others bring the rest. None = it can end.

        `rate` is how many bytes per second it brought lately.
        """
        with self.changed:
            while not self.halt.is_set and len(self._members) <= self._allowed:
                span = self._window.take(time.monotonic(), rate)
                if span is not None:
                    return span
                if not self._window.running:
                    break
                self.changed.wait(_LOOK_S)
            if member in self._members:
                self._members.remove(member)
                self.changed.notify_all()
            return None

    def give_back(self, span: Span) -> None:
        with self.changed:
            self._window.give_back(span)
            self.changed.notify_all()

    def claim(self, span: Span, n_bytes: int) -> int:
        """`n_bytes` came for `span`. Returns how many of them are still its own; they count as here.

        The caller writes them, and then sets `span.busy` back.
        """
        with self.changed:
            n_bytes = min(n_bytes, span.stop - span.at)
            span.at += n_bytes
            span.busy = True
            if n_bytes:
                self._patient.moved()
            last = n_bytes > 0 and self._window.first_missing is None
        if last:
            self.halt.set()  # a connection that is stuck with what another has brought must not be waited for
        return n_bytes

    def renew(self, gaps: Iterable[tuple[int, int]], span: Span) -> None:
        """The only connection, which has `span`, brought bytes in another order than it was told."""
        with self.changed:
            self._window = self._made(tuple(gaps))
            self._window.adopt(span)

    # -- how patient to be

    def grew(self) -> None:
        """New bytes are here."""
        with self.changed:
            self._patient.moved()

    def pass_gate(self) -> None:
        """Wait as long as the server asked any of the connections to. Raises Stopped."""
        while (left := self._gate - time.monotonic()) > 0:
            self.halt.wait(left)
        self.halt.check()

    def failed(self, began: float, why: str, asked_s: float | None) -> float:
        """A try ended early. Returns the seconds that this connection waits. Raises DownloadError.

        A server that names a time is asked by nobody before, and by one connection less from then on.
        """
        with self.changed:
            wait = self._patient.failed(began, why, asked_s)
            if asked_s is None:
                return wait
            self._gate = max(self._gate, time.monotonic() + wait)
            self._allowed = max(1, min(self._allowed, len(self._members)) - 1)
            self.changed.notify_all()
            return 0.0
