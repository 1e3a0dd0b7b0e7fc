"""The SQLite file. One thread owns the connection; the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, fields
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from appliance.errors import ApplianceError
from appliance.journal import events, reader
from appliance.journal.events import Event
from appliance.journal.rows import Row, Today
from appliance.journal.schema import SCHEMA_VERSION, bring_up, version_of
from appliance.journal.speeds import Seen, speeds_in
from appliance.journal.timeline import table
from appliance.journal.timeline.history import History, devices_in, history_in
from appliance.journal.timeline.reading import Page, timeline_in
from appliance.journal.timeline.values import Decided, Point
from appliance.journal.usual import CoolSpeed, cool_speeds_in

log = logging.getLogger("appliance.journal")
T = TypeVar("T")

KEPT_DAYS = 90
KEPT_ROWS = 200_000
PRUNE_EVERY = 5_000
"""Rows between two clean-ups of a daemon that runs for months."""
MAX_PENDING = 1_000
"""Rows that may wait for a slow disk; further ones are counted and dropped, never queued without end."""

_COLUMNS = tuple(field.name for field in fields(Row))


class Journal:
    """Rows in, rows out. A failing disk costs rows, never a reply: logged once, then counted."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._db: sqlite3.Connection | None = None
        self._pending = 0
        self._since_prune = 0
        self.lost = 0
        """Rows that could not be written since the start."""
        self.problem: str | None = None
        """What the disk said to the last of them that it refused."""

    async def open(self) -> None:
        """Create or open the file. Raises ApplianceError when it can't be used."""
        await self._run(self._open)

    async def record(self, row: Row) -> None:
        """Keep a row. Never raises for a failing disk."""
        await self._keep(lambda: self._insert(row))

    async def note(self, kind: str, ref: str | None, text: str, detail: str | None = None) -> None:
        """Keep an event: what happened to an engine. Never raises for a failing disk."""
        await self._keep(lambda: self._insert_event(kind, ref, text, detail))

    async def keep(self, points: Sequence[Point], decided: Sequence[Decided], now: float) -> None:
        """Keep a batch of samples and decisions of before `now`. Never raises for a failing disk."""
        await self._keep(lambda: self._insert_batch(points, decided, now), len(points) + len(decided))

    def lose(self, rows: int) -> None:
        """Rows that a writer had no room for while the disk was slow."""
        self.lost += rows

    async def forget_between(self, since: float, until: float) -> None:
        """The clock was set back from `until` to `since`: samples that are dated between are dated wrong."""
        await self._keep(lambda: self._forget(since, until), 0)

    async def _keep(self, work: Callable[[], None], rows: int = 1) -> None:
        if self._pending >= MAX_PENDING:
            self.lost += rows
            return
        self._pending += 1
        try:
            await self._run(work)
        except (sqlite3.Error, OverflowError) as error:
            if self.lost == 0:
                log.warning("the journal can't be written: %s", error)
            self.lost += rows
            self.problem = str(error)
        finally:
            self._pending -= 1

    async def recent(self, limit: int = 50) -> tuple[Row, ...]:
        """The newest rows, newest first."""
        return await self._run(lambda: self._recent(max(0, min(limit, 10_000))))

    async def events(self, limit: int = 50, after: int = 0) -> tuple[Event, ...]:
        """The newest events with a number above `after`, oldest first."""
        return await self._run(
            lambda: events.newest(self._connection, max(0, min(limit, 10_000)), max(0, after))
        )

    async def history(
        self, now: float, seconds: float, step: int | None = None, device: str | None = None
    ) -> History:
        """The figures of devices over the last `seconds`: see `history_in`."""
        return await self._run(lambda: history_in(self._connection, now, seconds, step, device))

    async def devices(self) -> tuple[str, ...]:
        """Those that `history` knows: `machine`, `cpu`, `gpu:` and an id."""
        return await self._run(lambda: devices_in(self._connection))

    async def timeline(self, since: float, until: float, limit: int = 1_000, *, newest: bool = True) -> Page:
        """Samples, events, decisions and requests in the order of time: see `timeline_in`."""
        return await self._run(lambda: timeline_in(self._connection, since, until, limit, newest=newest))

    async def today(self, now: float | None = None) -> Today:
        """Counts since local midnight."""
        moment = datetime.fromtimestamp(self._clock() if now is None else now)
        midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        return await self._run(lambda: self._today(midnight))

    async def speeds(self, served_model: str, plan: str | None = None) -> tuple[Seen, ...]:
        """Decode speeds that this model was seen with here; what was never seen is not in it.

        Only replies by one plan are compared: `plan`, or the one of the newest reply that counts.
        """
        return await self._run(lambda: speeds_in(self._connection, served_model, plan))

    async def cool_speeds(self) -> tuple[CoolSpeed, ...]:
        """Speeds of earlier days, measured while cool; oldest first."""
        return await self._run(lambda: cool_speeds_in(self._connection))

    async def close(self) -> None:
        """Write what is pending and close the file."""
        await self._run(self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _open(self) -> None:
        try:
            db = sqlite3.connect(self._file)
            self._file.chmod(0o600)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            found = version_of(db)
            if found > SCHEMA_VERSION:
                raise reader.newer(self._file, found)
            bring_up(db)
            self._prune(db)
            db.commit()
        except (sqlite3.Error, OSError) as error:
            raise ApplianceError(
                f"The journal {self._file} can't be opened.",
                cause=str(error),
                hint="Free disk space or move the file away; requests are recorded in it.",
            ) from error
        self._db = db

    def _prune(self, db: sqlite3.Connection) -> None:
        now = self._clock()
        db.execute("DELETE FROM requests WHERE started_at < ?", (now - KEPT_DAYS * 86_400,))
        db.execute(
            "DELETE FROM requests WHERE request_id IN "
            "(SELECT request_id FROM requests ORDER BY started_at DESC LIMIT -1 OFFSET ?)",
            (KEPT_ROWS,),
        )
        events.prune(db)
        table.prune(db, now)

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise sqlite3.ProgrammingError("the journal is not open")
        return self._db

    def _insert(self, row: Row) -> None:
        marks = ",".join("?" * len(_COLUMNS))
        names = ",".join(_COLUMNS)
        with self._connection as db:
            self._since_prune += 1
            if self._since_prune >= PRUNE_EVERY:
                self._since_prune = 0
                self._prune(db)
            db.execute(f"INSERT OR REPLACE INTO requests ({names}) VALUES ({marks})", astuple(row))  # noqa: S608

    def _insert_event(self, kind: str, ref: str | None, text: str, detail: str | None) -> None:
        with self._connection as db:
            events.insert(db, kind, ref, text, detail)

    def _insert_batch(self, points: Sequence[Point], decided: Sequence[Decided], now: float) -> None:
        with self._connection as db:
            table.keep(db, points, decided, now)

    def _forget(self, since: float, until: float) -> None:
        with self._connection as db:
            table.forget_between(db, since, until)

    def _recent(self, limit: int) -> tuple[Row, ...]:
        names = ",".join(_COLUMNS)
        found = self._connection.execute(
            f"SELECT {names} FROM requests ORDER BY started_at DESC LIMIT ?",  # noqa: S608
            (limit,),
        )
        return tuple(Row(*values) for values in found)

    def _today(self, midnight: float) -> Today:
        local, remote, errors = self._connection.execute(
            "SELECT COALESCE(SUM(route = 'local' AND status < 400), 0),"
            " COALESCE(SUM(route = 'remote' AND status < 400), 0),"
            " COALESCE(SUM(status >= 400 AND status != 499), 0) FROM requests WHERE started_at >= ?",
            (midnight,),
        ).fetchone()
        return Today(local, remote, errors)

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
