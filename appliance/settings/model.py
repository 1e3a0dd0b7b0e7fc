"""The sections of `config.toml` as validated, frozen models. Every default of the product stands here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator

from appliance.settings.addresses import problem_of
from appliance.units import parse_duration, parse_size, write_duration, write_size


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


def _duration_or_forever(value: object) -> object:
    return value if value == "forever" else _duration(value)


def _size_or_auto(value: object) -> object:
    found = value if value == "auto" else _size(value)
    if isinstance(found, (int, float)) and found <= 0:
        raise ValueError("it must be a size above 0, or auto")
    return found


KeepAlive = Annotated[
    Annotated[float, Field(ge=0)] | Literal["forever"],
    BeforeValidator(_duration_or_forever),
    PlainSerializer(
        lambda value: value if isinstance(value, str) else write_duration(value),
        return_type=str,
        when_used="json",
    ),
]
"""Seconds, or `forever`."""
SizeOrAuto = Annotated[
    Annotated[int, Field(gt=0)] | Literal["auto"],
    BeforeValidator(_size_or_auto),
    PlainSerializer(
        lambda value: value if isinstance(value, str) else write_size(value),
        return_type=str,
        when_used="json",
    ),
]
"""Bytes, or `auto`."""


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Server(Section):
    """The gateway's address."""

    host: str = "127.0.0.1"
    port: int = Field(8417, ge=0, le=65_535)
    allowed_hosts: tuple[str, ...] = ()


class Goals(Section):
    """What planner and router judge by."""

    ttft: Duration = 2.0
    decode: float = Field(15.0, gt=0)
    itl_p99: Duration = 0.5
    cost_per_day: float = Field(0.0, ge=0)


class Models(Section):
    """Which model is served."""

    default: str = "auto"
    on_demand: bool = True
    """A request that names a model which is here loads it."""
    preload: tuple[str, ...] = ()
    """Loaded at the start, as far as they fit beside each other."""
    pinned: tuple[str, ...] = ()
    """Never unloaded to make room, nor for lack of use."""
    keep_alive: KeepAlive = 1_800.0
    """A model is unloaded after so long without a request."""
    memory: SizeOrAuto = "auto"
    """All engines together take no more of each memory: each GPU, and the RAM. `auto`: all there is."""


EngineChoice = Literal["auto", "llama-server", "xllamacpp", "llama-cpp-python"]


class Engine(Section):
    """How the engine is started."""

    kind: EngineChoice = "auto"
    profile: Literal["chat", "docs", "batch"] = "chat"
    parallel: AutoOr = "auto"
    ctx: AutoOr = "auto"
    gpu_layers: AutoOr = "auto"
    llama_server: str = ""
    accept_cpu: bool = False
    cache_reuse: int = Field(0, ge=0, le=1 << 20)
    """Tokens of a chunk from which on it may be moved within the cache (replies differ then); 0 = never."""
    allow_old: bool = False
    """Use builds that are older than the security floor, too."""


class Downloads(Section):
    """How models are fetched. Pins decide what is accepted, so any mirror may be tried."""

    connections: int = Field(4, ge=1, le=16)
    """For one file, where the server takes ranges."""
    rate: Size = 0
    """Bytes per second over all transfers of one process; 0 = as fast as it goes."""
    mirrors: tuple[str, ...] = ()
    """Base URLs with the Hub's paths, tried in order after `HF_ENDPOINT` and before the public Hub."""

    @field_validator("mirrors")
    @classmethod
    def _addresses(cls, mirrors: tuple[str, ...]) -> tuple[str, ...]:
        for number, mirror in enumerate(mirrors, 1):
            if problem := problem_of(mirror):  # its text may hold a password, so it is not shown
                raise ValueError(
                    f"mirror {number} is no address of a Hub: {problem[0].lower()}{problem[1:-1]}"
                )
        return mirrors


class PromptCache(Section):
    """Prompts of an engine that stops are kept on disk for its next start. They are text of requests."""

    enabled: bool = True
    disk: Size = 2 << 30
    """All of them together."""
    age: Duration = 7 * 86_400.0
    """So long after it was saved a prompt is removed."""
    least_tokens: int = Field(256, ge=1, le=1 << 24)
    """Shorter prompts are worked on again faster than they are kept."""


class Planning(Section):
    """Memory that the planner leaves alone, and how far it may shrink the KV cache."""

    reserve: Size = 512 << 20
    kv_floor: Literal["f16", "q8_0", "q4_0"] = "q8_0"


class Routing(Section):
    """When a request may go to a remote."""

    policy: Literal["local-only", "local-first", "fastest", "remote-only"] = "local-first"
    max_wait: Duration = 8.0
    max_queue: int = Field(64, ge=1, le=10_000)


class Governor(Section):
    """The thermal rule, and what changes on battery."""

    slow: float = Field(0.8, gt=0, le=1)
    throttle_margin: float = Field(2.0, ge=0)
    hold: Duration = 5.0
    dwell: Duration = 60.0
    battery: Literal["full", "saver", "remote"] = "full"
    keep_awake: bool = True
    """No system sleep while a request runs."""


class RemoteSettings(Section):
    """One endpoint that may answer instead of this machine."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    kind: Literal["vllm", "openai"] = "vllm"
    url: str = Field(pattern=r"^https?://")
    api_key_env: str = Field("", pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")
    models: Mapping[str, str] = Field(default_factory=dict)


class LoraFile(Section):
    """A LoRA adapter of this computer; its hash proves that it is the one that was meant."""

    file: str = Field(min_length=1, max_length=4_096)
    """An absolute path; `~` is the home folder."""
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    scale: float = Field(1.0, ge=-100, le=100, allow_inf_nan=False)

    @field_validator("file")
    @classmethod
    def _absolute(cls, file: str) -> str:
        if not (file.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", file)):
            raise ValueError("is no absolute path: the daemon may run in another folder")
        if not file.isprintable():
            raise ValueError("has characters that no path should have")
        return file

    @field_validator("sha256")
    @classmethod
    def _small(cls, sha256: str) -> str:
        return sha256.lower()


class Override(Section):
    """What one model is started with beyond its own files, whoever asks for it."""

    lora: tuple[LoraFile, ...] = Field((), max_length=16)
    draft: str = Field("", max_length=200)
    """The name of a smaller model of the same family that proposes tokens."""


class Settings(Section):
    """The whole file."""

    server: Server = Server()
    goals: Goals = Goals()
    models: Models = Models()
    aliases: Mapping[str, str] = Field(default_factory=dict)
    engine: Engine = Engine()
    planning: Planning = Planning()
    downloads: Downloads = Downloads()
    prompt_cache: PromptCache = PromptCache()
    routing: Routing = Routing()
    governor: Governor = Governor()
    remotes: tuple[RemoteSettings, ...] = ()
    overrides: Mapping[str, Override] = Field(default_factory=dict)
    """By a model's id, or by `id:QUANT`, which wins key by key."""

    @field_validator("remotes")
    @classmethod
    def _names_differ(cls, remotes: tuple[RemoteSettings, ...]) -> tuple[RemoteSettings, ...]:
        names = [remote.name for remote in remotes]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two remotes have the name {twice!r}")
        return remotes


def keys() -> tuple[str, ...]:
    """The names that `config get` and `config set` take."""
    names: list[str] = []
    for section, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            names += [f"{section}.{key}" for key in kind.model_fields]
    return tuple(names)


def section(name: str) -> type[Section]:
    """The model of a section. Raises LookupError for one without keys of its own."""
    kind = Settings.model_fields[name].annotation
    if not (isinstance(kind, type) and issubclass(kind, Section)):
        raise LookupError(f"{name} is not a section with keys")
    return kind
