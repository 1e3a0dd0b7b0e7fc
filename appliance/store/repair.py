"""A whole file whose SHA-256 is not that of the pin: find the chunks that are wrong, and fetch only those.

First the chunks that are not on disk what they were when they came. Where none is, the error was on the way
here, or on the disk when the log of what came is lost: chunks are fetched again in order, from another place
where there is one, until one differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import xxhash

from appliance.errors import ApplianceError, DiskFull, DownloadError, NotVerified
from appliance.store import transfer
from appliance.store.asking import Route
from appliance.store.chunkfile import Unwritable
from appliance.store.hasher import Hasher
from appliance.store.partfile import PartFile
from appliance.store.patience import Terms, log
from appliance.store.refetch import Refetch

_EACH = 4
_RUNS = 16
"""So many replaced chunks, and so many runs of them, are each followed by a check of the whole. After more
only each power of two: where a place has altogether other bytes, checks would take the square of its size."""


class Repair:
    """One attempt to mend `part`, whose bytes are all here. Blocks.

    `delivered` is the route that brought the bytes: others are asked before it.
    """

    def __init__(
        self, part: PartFile, hasher: Hasher, routes: Sequence[Route], delivered: Route | None, terms: Terms
    ) -> None:
        self._part = part
        self._hasher = hasher
        self._routes = sorted(routes, key=lambda route: route is delivered)
        self._terms = terms
        self._wanted = part.file.sha256
        self._said: list[tuple[Route, ApplianceError]] = []
        """What places answered that could not be asked."""

    def run(self) -> str:
        """The SHA-256 after all that could be done, which was at most one second pass.

        Raises Stopped, DiskFull, Unwritable; DownloadError when no place answers.
        """
        digest = self._from_disk()
        return digest if digest == self._wanted else self._from_network(digest)

    def _from_disk(self) -> str:
        self._say("reading what has arrived")
        changed = self._part.differing(self._terms.stop, self._moved)
        if changed:
            log.warning("%s: %d chunks changed on this disk", self._part.file.base_name, len(changed))
            for index in changed:
                self._part.forget(index)
            transfer.fetch(self._routes, self._part, self._terms)
            self._say("checking the whole again")
        return self._digest()

    def _from_network(self, digest: str) -> str:
        replaced = checked = runs = 0
        for index, data in self._chunks():
            self._say("looking for the chunks that are wrong")
            self._moved(self._part.map.stop(index))
            same = xxhash.xxh3_64(data).hexdigest() == self._part.map.digests[index]
            if not same:
                log.warning("%s: chunk %d is replaced by what comes now", self._part.file.base_name, index)
                self._part.replace(index, data)
                replaced += 1
            if replaced > checked and _due(replaced, runs if same else None):
                runs, checked, digest = runs + same, replaced, self._digest()
                if digest == self._wanted:
                    return digest
        if not replaced and self._said:  # only the place that delivered answered: it can't tell what is wrong
            raise transfer.all_failed(self._part.file.base_name, self._said)
        return digest if checked == replaced else self._digest()

    def _digest(self) -> str:
        return self._hasher.digest(self._terms.stop)

    def _say(self, message: str) -> None:
        report = self._terms.report
        report.phase("repairing", total=report.whole, message=message)

    def _moved(self, done: int) -> None:
        self._terms.report.done = done

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """Every chunk once more, in order; the next place goes on where one fails."""
        said, first = self._said, 0
        for route in self._routes:
            try:
                for index, data in Refetch(route, self._part, self._terms, first).chunks():
                    first = index + 1
                    yield index, data
            except (DiskFull, Unwritable):
                raise
            except (DownloadError, NotVerified) as error:
                said.append((route, error))
            else:
                return
        raise transfer.all_failed(self._part.file.base_name, said)


def _due(replaced: int, runs: int | None) -> bool:
    """Check the whole now? `runs` is how many runs of wrong chunks were checked, at the end of one."""
    if runs is not None:
        return runs < _RUNS
    return replaced <= _EACH or replaced & (replaced - 1) == 0
