"""The chunks of a file once more, in order, from one place: a whole one at a time, into memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

from appliance.store.asking import Route, ask
from appliance.store.partfile import PartFile
from appliance.store.patience import Patient, Terms
from appliance.store.responses import Body, Retry
from appliance.web import Answer, Broken, Client

_PIECE = 1 << 20


class Refetch:
    """Nothing is written. From a server that sends only whole files, one answer gives all chunks."""

    def __init__(self, route: Route, part: PartFile, terms: Terms, first: int) -> None:
        self.next = first
        """The chunk that comes next."""
        self._route = route
        self._part = part
        self._bounds = part.map
        self._terms = terms
        self._patient = Patient(route.place.host, part.file.base_name, terms, "repairing")
        self._got = bytearray()
        """What is here of the next chunk."""
        self._whole = False

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Index and bytes. Raises Stopped, DownloadError or NotVerified."""
        client, stop = self._terms.client(), self._terms.stop
        try:
            with stop.calling(client.abort):
                while self.next < len(self._bounds):
                    began, asked_s = time.monotonic(), None
                    try:
                        yield from self._answered(client)
                        continue
                    except Retry as retry:
                        why, asked_s = retry.why, retry.wait_s
                        self._whole = self._whole or retry.whole
                    except Broken as broken:
                        why = broken.why
                    stop.check()
                    stop.wait(self._patient.failed(began, why, asked_s))
        finally:
            client.close()

    def _answered(self, client: Client) -> Iterator[tuple[int, bytes]]:
        """The chunks that one answer brings."""
        start, stop = self._bounds.start(self.next) + len(self._got), self._bounds.stop(self.next)
        answer, body = (
            ask(client, self._route, self._part, 0, None)
            if self._whole
            else ask(client, self._route, self._part, start, stop)
        )
        try:
            if body.whole:
                self._got.clear()
            yield from self._read(answer, body)
        finally:
            answer.finish()

    def _read(self, answer: Answer, body: Body) -> Iterator[tuple[int, bytes]]:
        at = body.start
        while at < body.stop:
            index = at // self._bounds.chunk
            data = answer.read1(min(self._bounds.stop(index) - at, self._terms.bucket.piece(_PIECE)))
            if not data:
                raise Broken("the connection ended early")
            at += len(data)
            self._terms.count(len(data), self._terms.stop)
            if index < self.next:
                continue  # of a whole body, what was looked at before
            self._got += data
            if not body.whole:  # what a range brought is kept for the next try
                self._patient.moved()
            if at == self._bounds.stop(index):
                found = bytes(self._got)
                self._got.clear()
                self.next += 1
                self._patient.moved()
                yield index, found
