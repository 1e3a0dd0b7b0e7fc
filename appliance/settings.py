"""`config.toml` as one validated, frozen model. Every default of the product stands here, and only here.

A value comes from the first of: the environment (`APPLIANCE_<SECTION>__<KEY>`), the file, the default.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from appliance.errors import SettingsError
from appliance.units import parse_duration, parse_size, write_duration, write_size

ENV_PREFIX = "APPLIANCE_"
WITHOUT_EFFECT = frozenset({"goals.itl_p99", "goals.cost_per_day", "models.preload", "models.keep_alive"})
"""Keys that are read and checked, and that no room uses yet: `config show` says so."""


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _number_or_auto(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdigit() else value


Size = Annotated[
    int, BeforeValidator(_size), Field(ge=0), PlainSerializer(write_size, return_type=str, when_used="json")
]
"""Bytes; written as `512MiB`."""
Duration = Annotated[
    float,
    BeforeValidator(_duration),
    Field(ge=0),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
]
"""Seconds; written as `8s`."""
AutoOr = Annotated[int | Literal["auto"], BeforeValidator(_number_or_auto)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Server(_Section):
    """The gateway's address."""

    host: str = "127.0.0.1"
    port: int = Field(8417, ge=0, le=65_535)
    allowed_hosts: tuple[str, ...] = ()


class Goals(_Section):
    """What planner and router judge by."""

    ttft: Duration = 2.0
    decode: float = Field(15.0, gt=0)
    itl_p99: Duration = 0.5
    cost_per_day: float = Field(0.0, ge=0)


class Models(_Section):
    """Which model is served."""

    default: str = "auto"
    preload: tuple[str, ...] = ()
    keep_alive: Duration = 1_800.0


EngineChoice = Literal["auto", "llama-server", "xllamacpp", "llama-cpp-python"]


class Engine(_Section):
    """How the engine is started."""

    kind: EngineChoice = "auto"
    profile: Literal["chat", "docs", "batch"] = "chat"
    parallel: AutoOr = "auto"
    ctx: AutoOr = "auto"
    gpu_layers: AutoOr = "auto"
    llama_server: str = ""
    accept_cpu: bool = False


class Planning(_Section):
    """Memory that the planner leaves alone, and how far it may shrink the KV cache."""

    reserve: Size = 512 << 20
    kv_floor: Literal["f16", "q8_0", "q4_0"] = "q8_0"


class Routing(_Section):
    """When a request may go to a remote."""

    policy: Literal["local-only", "local-first", "fastest", "remote-only"] = "local-first"
    max_wait: Duration = 8.0
    max_queue: int = Field(64, ge=1, le=10_000)


class Governor(_Section):
    """The thermal rule."""

    slow: float = Field(0.8, gt=0, le=1)
    throttle_margin: float = Field(2.0, ge=0)
    hold: Duration = 5.0
    dwell: Duration = 60.0


class RemoteSettings(_Section):
    """One endpoint that may answer instead of this machine."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    kind: Literal["vllm", "openai"] = "vllm"
    url: str = Field(pattern=r"^https?://")
    api_key_env: str = Field("", pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")
    models: Mapping[str, str] = Field(default_factory=dict)


class Settings(_Section):
    """The whole file."""

    server: Server = Server()
    goals: Goals = Goals()
    models: Models = Models()
    aliases: Mapping[str, str] = Field(default_factory=dict)
    engine: Engine = Engine()
    planning: Planning = Planning()
    routing: Routing = Routing()
    governor: Governor = Governor()
    remotes: tuple[RemoteSettings, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One key as `config show` prints it."""

    key: str
    value: Any
    source: str
    """`default`, the file's path, or the variable's name."""

    @property
    def note(self) -> str | None:
        """What to know about the key."""
        return "has no effect in this version" if self.key in WITHOUT_EFFECT else None

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "value": self.value, "source": self.source, "note": self.note}


def load(file: Path, env: Mapping[str, str] | None = None) -> Settings:
    """Read `file` (it may be absent) and the environment.

    Raises SettingsError, which names the key, for a value that can't be used.
    """
    return _validate(_merged(file, env or os.environ)[0], file)


def entries(file: Path, env: Mapping[str, str] | None = None) -> tuple[Entry, ...]:
    """Every key with its value in force and where it comes from."""
    merged, sources = _merged(file, env or os.environ)
    shown = _validate(merged, file).model_dump(mode="json")
    found: list[Entry] = []
    for section, values in shown.items():
        if section in ("aliases", "remotes"):
            found.append(Entry(section, values, sources.get(section, "default")))
            continue
        for key, value in values.items():
            name = f"{section}.{key}"
            found.append(Entry(name, value, sources.get(name, "default")))
    return tuple(found)


def keys() -> tuple[str, ...]:
    """The names that `config get` and `config set` take."""
    names: list[str] = []
    for section, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, _Section):
            names += [f"{section}.{key}" for key in kind.model_fields]
    return tuple(names)


def validate_text(text: str, file: Path) -> Settings:
    """The settings that a new text of `file` would give. Raises SettingsError."""
    return _validate(_parse(text, file), file)


def _parse(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"{file} is not valid TOML.", cause=str(error), hint="Correct that line, or move the file away."
        ) from None


def _merged(file: Path, env: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} can't be read.", cause=str(error)) from None
    tree = _parse(text, file)
    sources: dict[str, str] = {}
    for section, values in tree.items():
        if section in ("aliases", "remotes") or not isinstance(values, dict):
            sources[section] = str(file)
        else:
            sources.update({f"{section}.{key}": str(file) for key in values})
    known = set(keys())
    for name, raw in env.items():
        section, _, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
        if name.startswith(ENV_PREFIX) and f"{section}.{key}" in known:
            tree.setdefault(section, {})
            if isinstance(tree[section], dict):
                tree[section][key] = _from_text(section, key, raw)
                sources[f"{section}.{key}"] = name
    return tree, sources


def _from_text(section: str, key: str, raw: str) -> Any:
    """A value from a variable or the command line: lists are JSON or separated by commas."""
    kind = _section(section)
    if str(kind.model_fields[key].annotation).startswith("tuple"):
        if raw.lstrip().startswith("["):
            return tuple(json.loads(raw))
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    return raw


def text_of(value: object) -> str:
    """A JSON value in the form that `from_text` reads."""
    return json.dumps(value) if not isinstance(value, str) else value


def _section(name: str) -> type[_Section]:
    kind = Settings.model_fields[name].annotation
    if not (isinstance(kind, type) and issubclass(kind, _Section)):
        raise SettingsError(f"{name} is not a section with keys.")
    return kind


def from_text(key: str, raw: str) -> Any:
    """The value that `config set key raw` writes. Raises SettingsError for an unknown key or a bad value."""
    if key not in keys():
        raise SettingsError(
            f"There is no setting {key!r}.", hint="`appliance config show` lists all of them."
        )
    section, name = key.split(".")
    try:
        value = _from_text(section, name, raw)
    except ValueError as error:
        raise SettingsError(f"{key} can't be {raw!r}.", cause=str(error)) from None
    kind = _section(section)
    try:
        checked = kind.model_validate({name: value})
    except ValidationError as error:
        raise _settings_error(error, f"{key} = {raw!r}") from None
    typed = getattr(checked, name)
    if isinstance(value, str) and isinstance(typed, (int, float)) and not _is_number(value):
        return value  # keep `30m` as the user wrote it
    return list(typed) if isinstance(typed, tuple) else typed


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in ("true", "false")
    return True


def _validate(tree: Mapping[str, Any], file: Path) -> Settings:
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise _settings_error(error, str(file)) from None


def _settings_error(error: ValidationError, where: str) -> SettingsError:
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"] if isinstance(part, (str, int)))
    return SettingsError(
        f"The setting {key} in {where} can't be used.",
        cause=first["msg"],
        hint="`appliance config show` prints every key with its value and default.",
    )
