"""Which of a project's files fits this system, Python and glibc. Pure but for this interpreter's own tags."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from appliance.engines.builds.index import Link
from appliance.errors import EngineError

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Candidate:
    """A wheel, its name taken apart."""

    link: Link
    project: str
    version: str
    tags: frozenset[Tag]

    @property
    def made_for(self) -> str:
        """`cp310-abi3-manylinux_2_35_x86_64`, as the file's name has it."""
        return "-".join(self.link.file.removesuffix(".whl").split("-")[-3:])


def candidate(link: Link) -> Candidate | None:
    """None when the name is not that of a wheel."""
    try:
        project, version, _, tags = parse_wheel_filename(link.file)
    except (InvalidWheelFilename, ValueError):
        return None
    return Candidate(link, str(project), str(version), tags)


def here() -> tuple[Tag, ...]:
    """The tags of this interpreter on this system, the best first."""
    return tuple(sys_tags())


def choose(
    links: Iterable[Link],
    tags: Sequence[Tag],
    *,
    project: str | None = None,
    version: str | None = None,
    python: str | None = None,
) -> Candidate:
    """The best wheel: the wanted version, else the newest; then by the order of `tags`.

    `project` and `version` None: any. Raises EngineError that names what there is instead.
    """
    named = [one for one in map(candidate, links) if one is not None]
    if project is not None:
        named = [one for one in named if canonicalize_name(one.project) == canonicalize_name(project)]
    if not named:
        raise EngineError(
            "No wheel was found there.", hint="`--source` takes an index, a project page or a wheel."
        )
    of_version = [one for one in named if version is None or _same(one.version, version)]
    if not of_version:
        raise EngineError(
            f"There is no {project or named[0].project} {version} there.",
            cause=f"There is {_listed({one.version for one in named})}.",
            hint="Install the xllamacpp version that it has (pip), or name a wheel: --source FILE|URL.",
        )
    rank = {tag: place for place, tag in enumerate(tags)}
    fitting = [one for one in of_version if _fits(one, rank, python or platform.python_version())]
    if not fitting:
        raise EngineError(
            f"No wheel of {of_version[0].project} {of_version[0].version} is for this computer "
            f"(Python {platform.python_version()}, {tags[0].platform if tags else 'unknown'}).",
            cause=f"There is {_listed({one.made_for for one in of_version})}.",
            hint="Use a llama-server built for this system: `appliance config set engine.llama_server FILE`.",
        )
    return min(fitting, key=lambda one: (one.link.yanked, _age(one), _place(one, rank)))


def _fits(one: Candidate, rank: dict[Tag, int], python: str) -> bool:
    return any(tag in rank for tag in one.tags) and _python_fits(one.link.requires_python, python)


def _python_fits(wanted: str | None, python: str) -> bool:
    try:
        return wanted is None or SpecifierSet(wanted).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True  # a broken line of the index says nothing


def _same(one: str, other: str) -> bool:
    """`2026.10.11549+cu128` is the version 2026.10.11549 of a variant."""
    return Version(one).public == Version(other).public


def _age(one: Candidate) -> tuple[int, ...]:
    """Smaller for newer."""
    release = Version(one.version).release
    return tuple(-number for number in release) + (0,) * (8 - len(release))


def _place(one: Candidate, rank: dict[Tag, int]) -> int:
    return min(rank[tag] for tag in one.tags if tag in rank)


def _listed(words: set[str]) -> str:
    shown = sorted(words)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
