"""Bringing a partial file to its full size: several connections to one place, then the next place."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from appliance.errors import ApplianceError, DiskFull, DownloadError, NotVerified
from appliance.store.asking import Route
from appliance.store.chunkfile import Unwritable
from appliance.store.connection import Connection
from appliance.store.partfile import PartFile
from appliance.store.patience import Patient, Terms, log
from appliance.store.session import Session

_LAG = 192 << 20
"""Bytes that the hash may fall behind, beyond what it had before it when the transfer began."""


def fetch(routes: Sequence[Route], part: PartFile, terms: Terms) -> Route | None:
    """Fetch what `part` misses. Returns the route that brought the last of it; None when nothing was missing.

    Blocks; what has arrived stays on disk whatever happens. Raises Stopped, DiskFull, Unwritable, and when no
    place has the file DownloadError or NotVerified.
    """
    said: list[tuple[Route, ApplianceError]] = []
    for route in routes:
        if part.map.whole:
            return None
        try:
            bring(route, part, terms)
        except (DiskFull, Unwritable):
            raise
        except (DownloadError, NotVerified) as error:
            log.info("%s is given up: %s", route.place.host, error.message)
            said.append((route, error))
        else:
            return route
    raise all_failed(part.file.base_name, said)


def bring(route: Route, part: PartFile, terms: Terms) -> None:
    """Fetch what `part` misses from one place. Begins with one connection; the others follow its success."""
    patient = Patient(route.place.host, part.file.base_name, terms)
    session = Session(part.gaps(), part.map.chunk, patient, terms)
    threads: list[threading.Thread] = []

    lag = part.lag + _LAG

    def make() -> Connection:
        return Connection(session, route, part, terms, lag)

    with terms.stop.calling(session.halt.set), session.halt.calling(session.wake):
        try:
            while opened := session.open(make):
                for connection in opened:
                    threads.append(threading.Thread(target=connection.run, name="store-fetch", daemon=True))
                    threads[-1].start()
        finally:
            session.halt.set()
            for thread in threads:
                thread.join()
    terms.stop.check()
    if session.error is not None and not part.map.whole:
        raise session.error


def all_failed(name: str, said: Sequence[tuple[Route, ApplianceError]]) -> ApplianceError:
    """The one error for places that all failed."""
    if len(said) == 1:
        return said[0][1]
    told = [f"{route.place.host}: {_one_line(error)}" for route, error in said]
    hint = next((error.hint for _, error in reversed(said) if error.hint), None)
    return DownloadError(
        f"{name} can't be fetched from any of {len(said)} places.", cause="\n".join(told), hint=hint
    )


def _one_line(error: ApplianceError) -> str:
    return " ".join(part for part in (error.message, error.cause) if part)
