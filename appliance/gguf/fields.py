"""Typed access to the `<arch>.*` metadata of a header, with GgufError for values that make no sense."""

from __future__ import annotations

from appliance.errors import GgufError
from appliance.gguf.header import ArrayInfo, Header, MetaValue
from appliance.text import clean_line

_MAX = (1 << 31) - 1
_PARTS = {
    "mmproj": "a projector (mmproj), which turns pictures or sound into what a model reads",
    "adapter": "an adapter (LoRA), which changes a model",
    "imatrix": "an importance matrix, which serves to quantise a model",
}
"""`general.type` of files that are none."""


class Fields:
    """The keys of one architecture."""

    def __init__(self, header: Header) -> None:
        self._metadata = header.metadata
        self._arch = header.metadata.get("general.architecture")

    def has(self, key: str) -> bool:
        return f"{self._arch}.{key}" in self._metadata

    def get(self, key: str, default: int) -> int:
        """A whole number, `default` when the key is missing or holds an array."""
        value = self._metadata.get(f"{self._arch}.{key}")
        if value is None or isinstance(value, (tuple, ArrayInfo)):
            return default
        return self._whole(key, value)

    def optional(self, key: str) -> int | None:
        """A whole number, None when missing or 0."""
        return self.get(key, 0) or None

    def required(self, key: str, low: int, high: int) -> int:
        """A whole number in `low..high`."""
        if not isinstance(self._arch, str) or not self._arch:
            raise GgufError(
                "The file describes no language model.",
                cause="its header names no architecture (general.architecture)",
                hint="Check that it is a model file, or fetch it again.",
            )
        if not self.has(key):
            raise self._missing(key)
        value = self.get(key, -1)
        if not low <= value <= high:
            raise self.bad(key, f"{value} is outside {low} to {high}")
        return value

    def per_layer(self, key: str, n_layer: int, default: int) -> tuple[int, ...]:
        """One number per block; a single number counts for all."""
        value = self._metadata.get(f"{self._arch}.{key}")
        if not isinstance(value, tuple):
            return (self.get(key, default),) * n_layer
        if len(value) < n_layer:
            raise self.bad(key, f"it has {len(value)} values for {n_layer} blocks")
        return tuple(self._whole(key, item) for item in value[:n_layer])

    def flags(self, key: str, n_layer: int) -> tuple[bool, ...] | None:
        """One truth value per block; None when the key is missing or not an array."""
        value = self._metadata.get(f"{self._arch}.{key}")
        if not isinstance(value, tuple):
            return None
        if len(value) < n_layer:
            raise self.bad(key, f"it has {len(value)} values for {n_layer} blocks")
        return tuple(bool(item) for item in value[:n_layer])

    def length(self, key: str) -> int:
        """How many elements an array has (`key` without the architecture); 0 when it is missing."""
        value = self._metadata.get(key)
        if isinstance(value, ArrayInfo):
            return value.count
        return len(value) if isinstance(value, tuple) else 0

    def _whole(self, key: str, value: MetaValue) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX:
            raise self.bad(key, f"{value!r} is not a usable whole number")
        return value

    def _missing(self, key: str) -> GgufError:
        """By what the file says that it is: a part that goes with a model, or a model with a hole."""
        kind = self._metadata.get("general.type")
        part = "mmproj" if self._arch == "clip" else kind if isinstance(kind, str) else None
        if part in _PARTS:
            return GgufError(
                "The file is no language model.",
                cause=f"it is {_PARTS[part]}",
                hint="It can't be served alone: name the model file.",
            )
        return GgufError(
            "The file describes no whole language model.",
            cause=f"its header has no {clean_line(f'{self._arch}.{key}', 100)}: "
            "it is damaged or was converted wrongly",
            hint="Take it from another source.",
        )

    def bad(self, key: str, why: str) -> GgufError:
        """An error for a value that can't be, to be raised."""
        return GgufError(
            f"The header's {clean_line(f'{self._arch}.{key}', 100)} can't be used.",
            cause=clean_line(why, 200),
            hint="The file is damaged or was converted wrongly: take it from another source.",
        )
