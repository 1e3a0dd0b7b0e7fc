"""The catalog as a whole: what a name means."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from appliance import units
from appliance.catalog.entries import Frozen, HfSource, Model, Variant
from appliance.errors import UnknownModel

DEFAULT_LIMIT = 6 * units.GIB
"""Bytes: the largest member that a family name picks when the caller knows nothing about the machine."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """One variant of one model: what is fetched, planned and loaded."""

    model: Model
    variant: Variant

    @property
    def id(self) -> str:
        return self.model.id

    @property
    def quant(self) -> str:
        return self.variant.quant

    @property
    def ref(self) -> str:
        """`id:QUANT`."""
        return f"{self.id}:{self.quant}"


def refs_of(model: Model) -> tuple[ModelRef, ...]:
    """All variants of a model, the one to take by default first."""
    return tuple(ModelRef(model, variant) for variant in model.variants)


def repos_of(model: Model) -> tuple[str, ...]:
    """The repositories of the Hub that its variants come from, in order of the variants."""
    sources = (variant.source for variant in model.variants)
    return tuple(dict.fromkeys(source.repo for source in sources if isinstance(source, HfSource)))


class Catalog(Frozen):
    """All models by id."""

    models: Mapping[str, Model]

    def resolve(
        self,
        name: str,
        aliases: Mapping[str, str] | None = None,
        installed: Container[str] = (),
        *,
        limit: int = DEFAULT_LIMIT,
    ) -> ModelRef:
        """The variant that `name` means: an alias, `id`, `id:QUANT` or a family.

        `installed` holds refs that are on this disk. An id means its installed variant, else its first one. A
        family means its largest installed member, else its largest one of at most `limit` bytes, else its
        smallest; chat models come before others and models of limited licence are never picked. Raises
        UnknownModel with the three nearest names.
        """
        model, quant, model_id = self.split(name, aliases)
        if model is not None:
            return self._variant(model, quant, installed)
        members = [m for m in self.models.values() if m.family == model_id.lower() and not m.restricted]
        if members and not quant:
            return _best_of(members, installed, limit)
        raise self._unknown(name, aliases or {})

    def split(self, name: str, aliases: Mapping[str, str] | None = None) -> tuple[Model | None, str, str]:
        """`(model, quant, id)` of `ID[:QUANT]` or an alias of it; no model when there is none of that id."""
        model_id, _, quant = _follow(name.strip(), aliases or {}).partition(":")
        return self.models.get(model_id.lower()), quant, model_id

    def family(self, name: str, aliases: Mapping[str, str] | None = None) -> tuple[ModelRef, ...]:
        """Every variant of every member of the family of this name; nothing for any other name."""
        model, quant, family = self.split(name, aliases)
        if model is not None or quant:
            return ()
        return tuple(ref for ref in self.refs() if ref.model.family == family.lower())

    def refs(self) -> tuple[ModelRef, ...]:
        """Every variant of every model."""
        return tuple(ref for model in self.models.values() for ref in refs_of(model))

    def find(self, ref: str) -> ModelRef | None:
        """The variant with exactly this `id:QUANT`; None when the catalog has none."""
        model_id, _, quant = ref.partition(":")
        model = self.models.get(model_id)
        return next((r for r in refs_of(model) if r.quant == quant), None) if model else None

    def suggestions(self, fits: Callable[[ModelRef], bool], count: int = 3) -> tuple[ModelRef, ...]:
        """The largest chat models that `fits` accepts: one per family, none of limited licence."""
        found: dict[str, ModelRef] = {}
        candidates = [refs_of(m)[0] for m in self.models.values() if "chat" in m.use and not m.restricted]
        for ref in sorted(candidates, key=lambda r: r.variant.size, reverse=True):
            if ref.model.family not in found and fits(ref):
                found[ref.model.family] = ref
            if len(found) == count:
                break
        return tuple(found.values())

    def _variant(self, model: Model, quant: str, installed: Container[str]) -> ModelRef:
        if not quant:
            return next((r for r in refs_of(model) if r.ref in installed), refs_of(model)[0])
        for ref in refs_of(model):
            if ref.quant.casefold() == quant.casefold():
                return ref
        raise UnknownModel(
            f"{model.id} has no variant {quant!r}.",
            hint=f"There is {', '.join(r.ref for r in refs_of(model))}."
            + (f" Others: `appliance models show {model.id} --hub`." if repos_of(model) else ""),
        )

    def _unknown(self, name: str, aliases: Mapping[str, str]) -> UnknownModel:
        families = {model.family for model in self.models.values()}
        names = sorted({*self.models, *families, *aliases})
        nearest = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.0)
        return UnknownModel(
            f"There is no model {name!r} in the catalog.",
            cause=f"The nearest names are {', '.join(nearest)}." if nearest else "The catalog is empty.",
            hint="`appliance models list` shows all of them; your own models.toml adds others.",
        )


def _follow(name: str, aliases: Mapping[str, str]) -> str:
    seen: set[str] = set()
    while name in aliases and name not in seen:
        seen.add(name)
        name = aliases[name]
    return name


def _best_of(members: Iterable[Model], installed: Container[str], limit: int) -> ModelRef:
    refs = [ref for model in members for ref in refs_of(model)]
    here = [ref for ref in refs if ref.ref in installed]
    firsts = [ref for ref in refs if ref.variant is ref.model.variants[0]]
    small = [ref for ref in firsts if ref.variant.size <= limit]

    def rank(ref: ModelRef) -> tuple[bool, int]:
        return "chat" in ref.model.use, ref.variant.size

    if here or small:
        return max(here or small, key=rank)
    return min(firsts, key=lambda ref: ref.variant.size)
