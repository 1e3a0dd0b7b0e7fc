"""Which of the engines found is used, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from appliance.engines.values import Build, Choice, EngineKind
from appliance.errors import NoEngine
from appliance.settings import EngineChoice

_WITHOUT_GPU: tuple[EngineKind, ...] = ("xllamacpp", "llama-cpp-python", "llama-server")
_INSTALL: dict[EngineKind, str] = {
    "llama-server": "Install it, or name it: `appliance config set engine.llama_server FILE`.",
    "xllamacpp": "`pip install xllamacpp`.",
    "llama-cpp-python": "`pip install 'llama-appliance[llama-cpp-python]'` (compiles for minutes).",
}
ALLOW_OLD = "`appliance config set engine.allow_old true` lets it in all the same."


def choose(
    builds: Sequence[Build], wanted: EngineChoice, *, use: str | None = None, allow_old: bool = False
) -> Choice:
    """The engine to use. Raises NoEngine when none can be started, or the wanted kind is not here.

    `use` is the build that the user chose (`engines use`; None: left to us). Where it is of another kind than
    `wanted`, the latter wins; where it can't be started, another one is chosen and `Choice.replaced` says so.
    Else with `auto`: the first build that sees a real GPU (software devices never count), else xllamacpp,
    else llama-cpp-python, else a llama-server without a GPU. `builds` come in the order of `discover`; those
    below the security floor count only with `allow_old`.
    """
    usable = [build for build in builds if build.usable and (allow_old or not build.old)]
    if use is None:
        return _chosen(builds, usable, wanted)
    named = next((build for build in builds if build.name == use), None)
    if named is not None and wanted not in ("auto", named.kind):
        choice = _chosen(builds, usable, wanted)
        return replace(choice, reason=f"{choice.reason}; the one of `engines use` ({use}) is a {named.kind}")
    if named is not None and named in usable:
        return Choice(named, f"{_sees(named)}chosen by `engines use`")
    replaced = f"`engines use` names {use}, which {_missing(named)}"
    choice = _chosen(builds, usable, wanted)
    return Choice(choice.build, f"{choice.reason}; {replaced}", replaced)


def _chosen(builds: Sequence[Build], usable: Sequence[Build], wanted: EngineChoice) -> Choice:
    if wanted != "auto":
        return _wanted(builds, usable, wanted)
    for build in usable:
        if build.sees_gpu:
            return Choice(build, f"{build.build} sees {_gpu(build)}")
    found = sorted(usable, key=lambda build: build.home is not None)  # a GPU build has no use without its GPU
    for kind in _WITHOUT_GPU:
        for build in found:
            if build.kind == kind:
                return Choice(
                    build, f"no engine sees a GPU; {build.build} is the fastest one here on the CPU"
                )
    raise NoEngine(
        "No engine can be started here.",
        cause=_broken(builds) or "Neither xllamacpp, llama-cpp-python nor a llama-server was found.",
        hint=_hint(builds, "xllamacpp"),
    )


def _wanted(builds: Sequence[Build], usable: Sequence[Build], wanted: EngineKind) -> Choice:
    of_kind = sorted(
        (build for build in usable if build.kind == wanted), key=lambda build: build.home is not None
    )
    if not of_kind:
        same = [build for build in builds if build.kind == wanted]
        raise NoEngine(
            f"The engine {wanted} was asked for and can't be used.",
            cause=_broken(same) or "It was not found.",
            hint=_hint(same, wanted) + " Or use `--engine auto`.",
        )
    seeing = (build for build in usable if build.kind == wanted and build.sees_gpu)
    return Choice(next(seeing, of_kind[0]), f"{wanted} was asked for")


def _gpu(build: Build) -> str:
    return next(device for device in build.devices if not device.software).description


def _sees(build: Build) -> str:
    return f"it sees {_gpu(build)}; " if build.sees_gpu else ""


def _missing(named: Build | None) -> str:
    if named is None:
        return "is not here any more"
    if not named.usable:
        return f"can't be used: {named.note}"
    return f"is not let in: {named.note}"


def _hint(builds: Sequence[Build], kind: EngineKind) -> str:
    return f"Update it. {ALLOW_OLD}" if any(build.old for build in builds) else _INSTALL[kind]


def _broken(builds: Sequence[Build]) -> str | None:
    """Why none of these is taken: what does not start, and what is too old, by name."""
    notes = [build.note for build in builds if not build.usable and build.note]
    notes += [f"{build.build}: {build.note}" for build in builds if build.usable and build.old]
    return " ".join(notes) or None
