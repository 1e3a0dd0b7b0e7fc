"""One connection's thread: take a piece, ask for it, put its bytes where they belong, take the next."""

from __future__ import annotations

import time

from appliance.store.asking import Route, ask, first_bytes
from appliance.store.partfile import PartFile
from appliance.store.patience import Terms
from appliance.store.responses import Body, Retry, strong_etag
from appliance.store.segments import Span
from appliance.store.session import Session
from appliance.store.threads import Stopped
from appliance.web import Answer, Broken, shown

_PIECE = 1 << 20
_MISSES = 3
"""After so many tries that bring nothing, while others do, a connection is done without."""
_ENDED = "the connection ended early"


class Connection:
    """Brings pieces of `part` from one place until none is left for it. `run` is a thread's work."""

    def __init__(self, session: Session, route: Route, part: PartFile, terms: Terms, lag: int) -> None:
        self._session = session
        self._route = route
        self._part = part
        self._terms = terms
        self._client = terms.client()
        self._lag = lag
        self._best = part.arrived
        self._rate = 0.0
        self._misses = 0
        """Tries in a row that brought nothing."""

    def run(self) -> None:
        """Never raises: the session is told."""
        error: BaseException | None = None
        try:
            with self._session.halt.calling(self._client.abort):
                while (span := self._session.take(self, self._rate)) is not None:
                    if not self._brought(span):
                        break
                    self._rate = span.rate(time.monotonic())
        except Stopped:
            pass
        except BaseException as found:  # noqa: BLE001 - raised by the owner of the threads
            error = found
        finally:
            self._client.close()
            self._session.leave(self, error)

    def _brought(self, span: Span) -> bool:
        """One request. False when this connection is one too many."""
        session, began, start = self._session, time.monotonic(), span.at
        why, asked_s = _ENDED, None
        try:
            session.pass_gate()
            if span.done:  # another connection took it over meanwhile
                return True
            began = time.monotonic()
            if self._attempt(span):
                return True
        except Retry as retry:
            why, asked_s = retry.why, retry.wait_s
            if retry.whole:
                if session.step_down(self):
                    return False
                session.whole = True
        except _OneTooMany:
            return False
        except Broken as broken:
            why = broken.why
        finally:
            session.give_back(span)
        session.halt.check()
        self._misses = 0 if span.at > start else self._misses + 1
        if self._misses >= _MISSES and session.retire(self):
            return False
        session.halt.wait(session.failed(began, why, asked_s))
        return True

    def _attempt(self, span: Span) -> bool:
        """Returns True when all came that the server promised."""
        whole = self._session.whole
        start, stop = (0, None) if whole else (span.at, span.stop)
        answer, body = ask(self._client, self._route, self._part, start, stop)
        try:
            if not body.whole:
                return self._receive(answer, body, span)
            if not whole and self._session.step_down(self):
                raise _OneTooMany
            self._session.whole = False
            return self._receive_whole(answer, span)
        finally:
            answer.finish()

    def _receive(self, answer: Answer, body: Body, span: Span) -> bool:
        part, session, start = self._part, self._session, span.at
        data = first_bytes(answer, part, self._route.place.host) if start == 0 else b""
        session.prove()
        self._note(answer)
        try:
            while (room := min(span.stop, body.stop) - span.at) > 0:
                data = data or answer.read1(min(room, self._terms.bucket.piece(_PIECE)))
                if not data:
                    return False
                at = span.at
                n_bytes = session.claim(span, len(data))
                part.write(at, memoryview(data)[:n_bytes])
                span.busy = False
                session.prove(n_bytes)
                self._count(len(data))
                data = b""
            return True
        finally:
            if start < span.at < span.stop:  # not where the chunk is whole, or another connection has it
                part.flush_log(span.at - 1)

    def _receive_whole(self, answer: Answer, span: Span) -> bool:
        """Take a whole body from its front; what is here already and the same is left alone."""
        part, size, at, differed = self._part, self._part.file.size, 0, False
        data = first_bytes(answer, part, self._route.place.host)
        self._note(answer)
        try:
            while at < size and (differed or not part.map.whole):
                data = data or answer.read1(min(size - at, self._terms.bucket.piece(_PIECE)))
                if not data:
                    return False
                differed = part.put(at, data, self._session.halt) or differed
                at += len(data)
                if part.arrived > self._best:
                    self._best = part.arrived
                    self._session.grew()
                self._count(len(data))
                data = b""
            return True
        finally:
            if at:
                part.flush_log(at - 1)
            span.at = span.stop
            self._session.renew(part.gaps(), span)

    def _note(self, answer: Answer) -> None:
        self._part.come_from(shown(self._route.place.url), strong_etag(answer.headers))
        report = self._terms.report
        report.phase("downloading", total=report.whole)

    def _count(self, n_bytes: int) -> None:
        self._terms.report.done = self._part.arrived
        self._terms.count(n_bytes, self._session.halt)
        self._part.pace(self._lag, self._session.halt)


class _OneTooMany(Exception):
    """The server sends only whole files, and another connection is at work."""
