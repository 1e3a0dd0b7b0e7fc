"""The catalog as it is now: read again when a file of the user changed."""

from __future__ import annotations

import threading
from pathlib import Path

from appliance.catalog.files import load
from appliance.catalog.lookup import Catalog
from appliance.errors import CatalogError

_Stamp = tuple[tuple[int, int, int] | None, ...]


class LiveCatalog:
    """For any number of threads. `current` costs two looks at the file system while nothing changes."""

    def __init__(self, user_file: Path, pins_file: Path) -> None:
        """Raises CatalogError: a program does not start on a broken file."""
        self._files = (user_file, pins_file)
        self._mutex = threading.Lock()
        self._stamp = self._now()
        self._catalog = load(user_file, pins_file)
        self._problem: CatalogError | None = None

    @property
    def current(self) -> Catalog:
        """The present catalog. When a file has become broken: the last good one, and `problem` says why."""
        return self._looked()[0]

    @property
    def problem(self) -> CatalogError | None:
        """What is wrong with the files as they are now; None when nothing is."""
        return self._looked()[1]

    def _looked(self) -> tuple[Catalog, CatalogError | None]:
        with self._mutex:
            stamp = self._now()  # before the files are read: a later change is seen next time
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._catalog, self._problem = load(*self._files), None
                except CatalogError as error:
                    self._problem = error
            return self._catalog, self._problem

    def _now(self) -> _Stamp:
        return tuple(map(_stamp_of, self._files))


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
