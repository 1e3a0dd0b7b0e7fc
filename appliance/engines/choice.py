"""Which of the engines found is used, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.engines.values import Build, Choice, EngineKind
from appliance.errors import NoEngine
from appliance.settings import EngineChoice

_WITHOUT_GPU: tuple[EngineKind, ...] = ("xllamacpp", "llama-cpp-python", "llama-server")
_INSTALL: dict[EngineKind, str] = {
    "llama-server": "Install it, or name it: `appliance config set engine.llama_server FILE`.",
    "xllamacpp": "`pip install xllamacpp`.",
    "llama-cpp-python": "`pip install 'llama-appliance[llama-cpp-python]'` (compiles for minutes).",
}


def choose(builds: Sequence[Build], wanted: EngineChoice) -> Choice:
    """The engine to use. Raises NoEngine when none can be started, or the wanted kind is not here.

    With `auto`: the first build that sees a real GPU (software devices never count), else xllamacpp, else
    llama-cpp-python, else a llama-server without a GPU. `builds` come in the order of `discover`.
    """
    usable = [build for build in builds if build.usable]
    if wanted != "auto":
        return _wanted(builds, usable, wanted)
    for build in usable:
        if build.sees_gpu:
            gpu = next(device for device in build.devices if not device.software)
            return Choice(build, f"{build.build} sees {gpu.description}")
    for kind in _WITHOUT_GPU:
        for build in usable:
            if build.kind == kind:
                return Choice(
                    build, f"no engine sees a GPU; {build.build} is the fastest one here on the CPU"
                )
    raise NoEngine(
        "No engine can be started here.",
        cause=_broken(builds) or "Neither xllamacpp, llama-cpp-python nor a llama-server was found.",
        hint=_INSTALL["xllamacpp"],
    )


def _wanted(builds: Sequence[Build], usable: Sequence[Build], wanted: EngineKind) -> Choice:
    of_kind = [build for build in usable if build.kind == wanted]
    if not of_kind:
        raise NoEngine(
            f"The engine {wanted} was asked for and can't be used.",
            cause=_broken([build for build in builds if build.kind == wanted]) or "It was not found.",
            hint=_INSTALL[wanted] + " Or use `--engine auto`.",
        )
    best = next((build for build in of_kind if build.sees_gpu), of_kind[0])
    return Choice(best, f"{wanted} was asked for")


def _broken(builds: Sequence[Build]) -> str | None:
    notes = [build.note for build in builds if not build.usable and build.note]
    return " ".join(notes) or None
