"""`Client`: typed calls to the control plane of a running daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from appliance import __version__
from appliance.client import record
from appliance.client.documents import PlanDocument, RemoteRow, RequestRow
from appliance.client.fields import rows, texts
from appliance.client.status import StatusSnapshot
from appliance.client.transfers import DownloadRow, StartRow
from appliance.client.transport import Transport
from appliance.errors import NoDaemon

if TYPE_CHECKING:
    from appliance.client.history import HistoryDocument
    from appliance.client.library import CatalogRow, EngineList, EventPage, LogPage, SettingRow
    from appliance.paths import Paths

QUICK_S = 5.0
"""For answers that the daemon has at hand."""
PROBE_S = 30.0
"""For answers that need a child process or a network peer."""
STOP_S = 60.0
"""For answers that come once an engine or a transfer has stopped."""
LOAD_S = 900.0
"""For loading a model or hashing its file."""
DAY_S = 86_400.0
"""For a whole download."""


def _name(value: str) -> str:
    return quote(value, safe=":")


class Client:
    """The door to one daemon. A method raises NoDaemon when it is gone, else the daemon's own error."""

    def __init__(self, found: record.Record, *, timeout_s: float = QUICK_S) -> None:
        self._record = found
        self._transport = Transport(found.url, found.token)
        self._quick_s = timeout_s

    @classmethod
    def connect(cls, paths: Paths, *, timeout_s: float = QUICK_S) -> Client:
        """Find the daemon of this user and check that it answers.

        Raises NoDaemon when `daemon.json` is missing or broken, its process has ended, its pid now belongs to
        another process, or the address does not answer as that process.
        """
        client = cls(record.read(paths.daemon_file), timeout_s=timeout_s)
        pid = client.status().daemon.pid
        if pid is not None and pid != client.pid:
            raise NoDaemon(
                "Another program answers where the daemon should be.",
                cause=f"{client.url} is served by process {pid}, daemon.json names {client.pid}.",
                hint=record.UNCLEAR_HINT,
            )
        return client

    def __repr__(self) -> str:
        return f"Client({self.url!r}, pid={self.pid})"

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        return self._record.pid

    @property
    def url(self) -> str:
        """Root of the gateway, without `/v1`."""
        return self._record.url

    @property
    def version_mismatch(self) -> str | None:
        """The daemon's version when it differs from ours, else None."""
        theirs = self._record.version
        return theirs if theirs is not None and theirs != __version__ else None

    def status(self) -> StatusSnapshot:
        """Everything at one moment."""
        return StatusSnapshot.parse(self.call("GET", "/api/status"))

    def events(self, *, silence_s: float = 60.0) -> Iterator[StatusSnapshot]:
        """A snapshot now, then one on each change. Ends when the daemon closes the stream."""
        from appliance.client.stream import snapshots

        with self._transport.stream("/api/events", timeout_s=silence_s) as response:
            yield from snapshots(response)

    def models(self) -> tuple[CatalogRow, ...]:
        """All variants that the catalog lists, with what is here."""
        from appliance.client.library import CatalogRow

        return rows(CatalogRow)(self.call("GET", "/api/models", timeout_s=PROBE_S).get("models"))

    def downloads(self) -> tuple[DownloadRow, ...]:
        """Transfers that run, wait or just ended."""
        return rows(DownloadRow)(self.call("GET", "/api/downloads").get("downloads"))

    def engines(self) -> EngineList:
        """Engine builds found here and the one in use."""
        from appliance.client.library import EngineList

        return EngineList.parse(self.call("GET", "/api/engines", timeout_s=PROBE_S))

    def remotes(self) -> tuple[RemoteRow, ...]:
        """Configured remote endpoints."""
        return rows(RemoteRow)(self.call("GET", "/api/remotes").get("remotes"))

    def journal(self, limit: int = 50) -> tuple[RequestRow, ...]:
        """The last requests, newest first."""
        path = "/api/journal?" + urlencode({"limit": limit})
        return rows(RequestRow)(self.call("GET", path).get("requests"))

    def settings(self) -> tuple[SettingRow, ...]:
        """All settings with their source."""
        from appliance.client.library import SettingRow

        return rows(SettingRow)(self.call("GET", "/api/settings").get("settings"))

    def history(self, seconds: int = 3_600, step: int | None = None, device: str = "") -> HistoryDocument:
        """The figures of devices over the last `seconds`, in steps of 1 or 60; None: what suits."""
        from appliance.client.history import HistoryDocument, path_of

        return HistoryDocument.parse(self.call("GET", path_of(seconds, step, device), timeout_s=PROBE_S))

    def pinned(self) -> tuple[str, ...]:
        """The models of the setting `models.pinned`, as they are written there."""
        value = next((row.value for row in self.settings() if row.key == "models.pinned"), None)
        return texts(value)

    def logs(
        self, after: int = 0, limit: int = 500, *, model: str | None = None, newest: bool = False
    ) -> LogPage:
        """Log lines with a sequence number above `after`, or the newest ones; of one model or of all."""
        from appliance.client.library import LogPage

        asked = {"after": after, "limit": limit} | ({"model": model} if model else {})
        return LogPage.parse(self.call("GET", "/api/logs?" + urlencode(asked | {"newest": int(newest)})))

    def engine_events(self, after: int = 0, limit: int = 50) -> EventPage:
        """The newest events of engines with a number above `after`, oldest first."""
        from appliance.client.library import EventPage

        path = "/api/journal/events?" + urlencode({"after": after, "limit": limit})
        return EventPage.parse(self.call("GET", path))

    def plan(
        self,
        model: str,
        *,
        ctx: int | None = None,
        parallel: int | None = None,
        kv: str | None = None,
        gpu_layers: int | None = None,
    ) -> PlanDocument:
        """How `model` would be laid out here. None leaves the choice to the planner."""
        body = {"model": model, "ctx": ctx, "parallel": parallel, "kv": kv, "gpu_layers": gpu_layers}
        return PlanDocument.parse(self.call("POST", "/api/plan", body, timeout_s=PROBE_S))

    def start_download(self, ref: str, *, accept_license: bool = False, rate: int | None = None) -> StartRow:
        """Begin (or join, or resume) the transfer of a model; `rate` in bytes per second at most.

        Raises LicenseNotAccepted for a licence that was not accepted here before, unless it is now.
        """
        options = {"accept_license": accept_license or None, "rate": rate}
        body = {"model": ref} | {key: value for key, value in options.items() if value is not None}
        return StartRow.parse(self.call("POST", "/api/downloads", body, timeout_s=PROBE_S))

    def pause_download(self, download_id: str) -> None:
        """Stop a transfer until it is resumed. What has arrived is kept."""
        self.call("POST", f"/api/downloads/{_name(download_id)}/pause", {}, timeout_s=STOP_S)

    def resume_download(self, download_id: str) -> None:
        """Go on with a transfer that is paused or has failed."""
        self.call("POST", f"/api/downloads/{_name(download_id)}/resume", {}, timeout_s=STOP_S)

    def cancel_download(self, download_id: str) -> None:
        """Stop a transfer and leave it; what has arrived is kept. A finished one goes from the list."""
        self.call("DELETE", f"/api/downloads/{_name(download_id)}", timeout_s=STOP_S)

    def load(
        self,
        ref: str,
        *,
        gpu_layers: int | None = None,
        ctx: int | None = None,
        parallel: int | None = None,
        kv: str | None = None,
        timeout_s: float = LOAD_S,
    ) -> dict[str, Any]:
        """Load a model that is here; it becomes the default. None leaves the choice to the planner.

        One that is loaded is planned and loaded anew.
        """
        options = {"gpu_layers": gpu_layers, "ctx": ctx, "parallel": parallel, "kv": kv}
        body = {key: value for key, value in options.items() if value is not None}
        return self.call("POST", f"/api/models/{_name(ref)}/load", body, timeout_s=timeout_s)

    def unload(self, ref: str) -> dict[str, Any]:
        """Free a model's memory; a load that is under way ends. A request loads it again."""
        return self.call("POST", f"/api/models/{_name(ref)}/unload", {}, timeout_s=STOP_S)

    def restart(self, ref: str, *, timeout_s: float = LOAD_S) -> dict[str, Any]:
        """Load a model again with the same wishes and what is free now. Raises what the load ended with."""
        return self.call("POST", f"/api/models/{_name(ref)}/restart", {}, timeout_s=timeout_s)

    def pin(self, ref: str, pinned: bool) -> dict[str, Any]:
        """Keep a model loaded once it is, or no longer; `models.pinned` of the settings is changed."""
        return self.call("POST", f"/api/models/{_name(ref)}/pin", {"pinned": pinned})

    def verify(self, ref: str, *, timeout_s: float = LOAD_S) -> dict[str, Any]:
        """Hash a model's files again. Raises NotVerified when they are damaged."""
        return self.call("POST", f"/api/models/{_name(ref)}/verify", {}, timeout_s=timeout_s)

    def start_repair(self, ref: str) -> StartRow:
        """Begin to mend a model; its row among the downloads says how it goes and ends."""
        return StartRow.parse(self.call("POST", f"/api/models/{_name(ref)}/repair", {}, timeout_s=PROBE_S))

    def repair(
        self, ref: str, on_change: Callable[[DownloadRow], None] = lambda _: None, *, limit_s: float = DAY_S
    ) -> dict[str, Any]:
        """Mend a model and wait for the end: `{"ref", "fetched"}`, bytes. Raises what it ended with."""
        started = self.start_repair(ref)
        row = self.follow(started.id, on_change, limit_s=limit_s)
        return {"ref": row.ref, "fetched": row.fetched}

    def follow(
        self,
        download_id: str,
        on_change: Callable[[DownloadRow], None] = lambda _: None,
        *,
        limit_s: float = DAY_S,
    ) -> DownloadRow:
        """Wait until a download has ended well, at most `limit_s`; `on_change` sees each new row.

        Raises the error it ended with, or DownloadError when it was paused, cancelled or forgotten.
        """
        from appliance.client.following import follow

        return follow(self, download_id, on_change, limit_s)

    def remove(self, ref: str, *, force: bool = False) -> dict[str, Any]:
        """Delete a model's files; `force` unloads it, and ends its download, first."""
        path = f"/api/models/{_name(ref)}" + ("?force=1" if force else "")
        return self.call("DELETE", path, timeout_s=STOP_S)

    def add_remote(
        self,
        name: str,
        url: str,
        *,
        kind: str | None = None,
        api_key_env: str | None = None,
        models: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Configure a remote endpoint. Only the name of the variable that holds its key is sent."""
        options = {"kind": kind, "api_key_env": api_key_env, "models": dict(models) if models else None}
        body = {"name": name, "url": url} | {k: v for k, v in options.items() if v is not None}
        return self.call("POST", "/api/remotes", body)

    def remove_remote(self, name: str) -> None:
        """Forget a remote endpoint."""
        self.call("DELETE", f"/api/remotes/{_name(name)}")

    def test_remote(self, name: str) -> RemoteRow:
        """Probe a remote endpoint now."""
        answer = self.call("POST", f"/api/remotes/{_name(name)}/test", {}, timeout_s=PROBE_S)
        return RemoteRow.parse(answer.get("remote", answer))

    def set_setting(self, key: str, value: object) -> dict[str, Any]:
        """Change one setting in `config.toml`. Raises SettingsError when the value can't be used."""
        return self.call("PATCH", "/api/settings", {"key": key, "value": value})

    def stop_engine(self) -> None:
        """Unload all models; the gateway keeps answering (from a remote, or with 503).

        Requests load none until a person does.
        """
        self.call("POST", "/api/engine/stop", {}, timeout_s=PROBE_S)

    def restart_engine(self, *, timeout_s: float = LOAD_S) -> None:
        """Load the default model again: plan with the same wishes and what is free now."""
        self.call("POST", "/api/engine/restart", {}, timeout_s=timeout_s)

    def shutdown(self) -> None:
        """Stop the daemon."""
        self.call("POST", "/api/shutdown", {}, timeout_s=PROBE_S)

    def call(
        self, method: str, path: str, body: object = None, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """One call of the control plane; its document as it came. Raises what the daemon reports."""
        return self._transport.call(method, path, body, timeout_s=timeout_s or self._quick_s)
