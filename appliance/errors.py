"""Every error that may reach a user: what happened, why, and what to do next.

    ApplianceError
    ├── UsageError                 wrong words on the command line or in a request
    │   ├── SettingsError          config.toml or an environment variable
    │   └── CatalogError           models.toml
    ├── NoDaemon                   a command needs a running daemon and none answers
    ├── DaemonRunning              a second daemon was asked for
    ├── PortTaken                  the gateway's address is held by another process
    ├── ModelError
    │   ├── UnknownModel           no such name in the catalog
    │   ├── ModelMissing           known, but not on this disk
    │   ├── ModelInUse             loaded now
    │   └── NotVerified            bytes on disk do not match the pin
    ├── GgufError                  a header that cannot be read
    ├── DownloadError              the transfer failed; what has arrived is kept
    │   └── DiskFull
    ├── HubError                   what the Hub (or a mirror) says can't be had or can't be used
    │   ├── HubOffline             HF_HUB_OFFLINE is set
    │   ├── NotOnHub               no such repository, revision or file
    │   └── Gated                  terms must be accepted on a page first
    ├── LicenseNotAccepted         the licence limits use and has not been accepted here
    ├── DoesNotFit                 no plan for this machine
    ├── EngineError
    │   ├── NoEngine               no engine can be started here
    │   ├── EngineFailed           it ended while loading or serving
    │   │   └── OutOfMemory        for lack of memory, also with smaller plans
    │   ├── DeviceLost             its GPU is gone
    │   └── EngineUnavailable      not ready now
    ├── RemoteError                the remote endpoint
    └── Rejected                   a request that the gateway refuses

A foreign exception is wrapped at the boundary that called it, so that nobody above sees a traceback.
"""

from __future__ import annotations

from typing import Any, ClassVar


class ApplianceError(Exception):
    """The base. `message` says what happened, `cause` why, `hint` what to do next."""

    exit_code: ClassVar[int] = 1
    """Exit code of the command line (0 done, 1 failed, 2 usage, 3 no daemon, 4 model, 5 does not fit)."""
    status: ClassVar[int] = 500
    """HTTP status when it ends a request."""
    code: ClassVar[str] = "failed"
    """A stable word for programs."""

    def __init__(self, message: str, *, cause: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(part for part in (self.message, self.cause, self.hint) if part)

    def to_json(self) -> dict[str, Any]:
        """The document that `--json` and the control plane show."""
        return {"code": self.code, "message": self.message, "cause": self.cause, "hint": self.hint}


class UsageError(ApplianceError):
    """The caller asked in a way that can't be understood."""

    exit_code, status, code = 2, 400, "usage"


class SettingsError(UsageError):
    """`config.toml` or an `APPLIANCE_*` variable holds a value that can't be used."""

    code = "settings"


class CatalogError(UsageError):
    """A `models.toml` is broken; the message names file, line and key."""

    code = "catalog"


class NoDaemon(ApplianceError):
    """No daemon answers."""

    exit_code, status, code = 3, 503, "no_daemon"


class DaemonRunning(ApplianceError):
    """A daemon of this user is already serving; the message says where."""

    status, code = 409, "daemon_running"


class PortTaken(ApplianceError):
    """The wanted address is in use; the message says by whom where that can be known."""

    status, code = 409, "port_taken"


class ModelError(ApplianceError):
    """A model can't be used."""

    exit_code = 4
    status = 404
    code = "model"


class UnknownModel(ModelError):
    """No catalog entry has this name."""

    code = "unknown_model"


class ModelMissing(ModelError):
    """The catalog knows the model; its files are not here."""

    code = "model_missing"


class ModelInUse(ModelError):
    """The model is loaded, so its files stay."""

    exit_code = 1
    status = 409
    code = "model_in_use"


class NotVerified(ModelError):
    """Size, magic or SHA-256 differ from the pin. The bytes are kept aside and never served.

    `damage` says of each damaged file what is wrong with it, as JSON objects, where a check found that out.
    """

    status = 409
    code = "not_verified"

    def __init__(
        self,
        message: str,
        *,
        cause: str | None = None,
        hint: str | None = None,
        damage: tuple[dict[str, Any], ...] = (),
    ) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.damage = damage

    def to_json(self) -> dict[str, Any]:
        """With `damage`, where there is any."""
        return super().to_json() | ({"damage": list(self.damage)} if self.damage else {})


class GgufError(ApplianceError):
    """A GGUF header is broken, hostile or of an unknown version."""

    exit_code = 4
    status = 422
    code = "gguf"


class DownloadError(ApplianceError):
    """A transfer failed."""

    status = 502
    code = "download"


class DiskFull(DownloadError):
    """The disk can't hold what is still missing plus the reserve."""

    status = 507
    code = "disk_full"


class HubError(ApplianceError):
    """The Hub, or a mirror of it, can't be asked or gave an answer that can't be used."""

    status = 502
    code = "hub"


class HubOffline(HubError):
    """`HF_HUB_OFFLINE` is set, so nothing was asked."""

    status = 503
    code = "hub_offline"


class NotOnHub(HubError):
    """No such repository, revision or file; or one that this token may not see."""

    status = 404
    code = "not_on_hub"


class Gated(HubError):
    """The repository is gated; the hint names the page where its terms are accepted."""

    status = 403
    code = "gated"


class LicenseNotAccepted(ApplianceError):
    """A licence that limits commercial use was not accepted on this machine yet."""

    status = 403
    code = "license"


class DoesNotFit(ApplianceError):
    """No split of this model fits this machine."""

    exit_code = 5
    status = 409
    code = "does_not_fit"


class EngineError(ApplianceError):
    """The engine."""

    status = 503
    code = "engine"


class NoEngine(EngineError):
    """No engine was found that can be started."""

    code = "no_engine"


class EngineFailed(EngineError):
    """The engine ended by itself. `lines` are the last ones of its log.

    `out_of_memory` is the place whose memory ran out: a device's name, `Host`, or `unknown`; None when
    something else was wrong.
    """

    code = "engine_failed"

    def __init__(
        self,
        message: str,
        *,
        cause: str | None = None,
        hint: str | None = None,
        lines: tuple[str, ...] = (),
        out_of_memory: str | None = None,
    ) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.lines = lines
        self.out_of_memory = out_of_memory


class DeviceLost(EngineError):
    """A GPU that an engine had is gone or of no use, and the model is not served without it."""

    code = "device_lost"


class OutOfMemory(EngineFailed):
    """It ran out of memory, and there is no smaller plan left to try: the model does not fit."""

    exit_code = 5
    code = "out_of_memory"


class EngineUnavailable(EngineError):
    """The engine is not ready now."""

    code = "engine_unavailable"


class RemoteError(ApplianceError):
    """The remote endpoint can't be used."""

    status = 502
    code = "remote"


class Rejected(ApplianceError):
    """A request that the gateway refuses. `reason` is one of the `reject.*` codes."""

    code = "rejected"

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        http_status: int,
        cause: str | None = None,
        hint: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.reason = reason
        self.http_status = http_status
        self.retry_after_s = retry_after_s
