"""One process of an engine, from its start to its end: its address, key, pid file, log reader."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path

from appliance import processes
from appliance.engines import loading, pidfile, wire
from appliance.engines.adapters import command, listen_at
from appliance.engines.crashes import FIRST_REQUESTS
from appliance.engines.failures import (
    BY_ANOTHER,
    UNKNOWN_PLACE,
    Explained,
    died_of_memory,
    exit_text,
    explain,
    was_killed,
)
from appliance.engines.limits import Limits
from appliance.engines.logparse import LoadReader
from appliance.engines.logs import LogFile, LogRing
from appliance.engines.pace import Pace
from appliance.engines.process import Child, spawn, unlink
from appliance.engines.values import Build, Endpoint, EngineKind, Launch
from appliance.paths import Paths


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A started process with everything that belongs to it alone."""

    child: Child
    launch: Launch
    endpoint: Endpoint
    reader: LoadReader
    ring: LogRing
    note: Path | None
    """The pid file, by which a later daemon finds it when this one is gone; None: it could not be written."""
    started_at: float
    """Unix seconds."""
    kills: int | None = None
    """How often the system had ended a program for lack of memory, at the start; None: it does not tell."""

    @classmethod
    async def start(
        cls,
        build: Build,
        launch: Launch,
        *,
        paths: Paths,
        name: str,
        generation: int,
        ring: LogRing,
        file: LogFile,
        pace: Pace,
    ) -> Incarnation:
        """Start it with a new key; its log tells `pace` how fast it is.

        Raises EngineFailed or OSError when that is not possible.
        """
        listen = listen_at(paths, name)
        endpoint = Endpoint(listen.base_url, listen.socket, secrets.token_hex(32), generation)
        reader, marker, now = LoadReader(), secrets.token_hex(16), time.time()
        unlink(listen.socket)

        def on_line(line: str) -> None:
            reader.feed(line)
            pace.feed(line)

        what = await command(build, launch, listen, key=endpoint.key, marker=marker)
        child = await spawn(what, marker=marker, ring=ring, on_line=on_line, secret=endpoint.key, file=file)
        note = pidfile.write(paths, child, listen.socket)
        return cls(child, launch, endpoint, reader, ring, note, now, processes.memory_kills())

    @property
    def gpu_layers(self) -> int | None:
        """On a device, as read back. What was told to use none has none, also when its log says nothing."""
        read = self.reader.gpu_layers
        return 0 if read is None and self.launch.plan.gpu_layers == 0 else read

    async def load(self, kind: EngineKind, limits: Limits) -> wire.Props:
        """Wait until it works, and return what it serves. Raises EngineFailed."""
        props = await loading.load(
            self.child, self.endpoint, self.launch, kind,
            reader=self.reader, lines=lambda: self.ring.written, limits=limits,
        )  # fmt: skip
        self.reader.loaded()
        return props

    async def last_words(self, requests: int | None) -> tuple[str, Explained]:
        """What happened and why, once it has ended by itself: after so many `requests`, or (None) loading."""
        code = await self.child.wait()
        loading = requests is None
        why = explain(code, self.reader.failure, serving=not loading)
        silent = why is explain(code, None, serving=not loading)
        if silent and self.launch.tight and (requests or 0) <= FIRST_REQUESTS:
            why = died_of_memory(code) or why
        if why.memory == UNKNOWN_PLACE:
            why = replace(why, memory=self.reader.out_of_memory(self.launch.plan.devices))
        elif was_killed(code) and silent and not loading:
            why = self._killed(why)
        return f"The engine ended while {'loading' if loading else 'serving'} ({exit_text(code)}).", why

    def _killed(self, why: Explained) -> Explained:
        """What SIGKILL means for an engine that was ready."""
        counted = self._killed_for_memory()
        if counted is None:
            return replace(why, memory=None)
        return why if counted else BY_ANOTHER

    def _killed_for_memory(self) -> bool | None:
        """The system has ended a program for lack of memory meanwhile; None: it does not tell. While loading
        no proof is needed: there are services that do the same and are not counted.
        """
        now = processes.memory_kills()
        return None if self.kills is None or now is None else now > self.kills

    async def end(self, limit_s: float) -> None:
        """End the process (SIGTERM, then SIGKILL after `limit_s`) and take its files away."""
        await self.child.end(limit_s)
        unlink(self.endpoint.socket)
        unlink(self.note)
