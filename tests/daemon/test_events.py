"""What a served model went through, as events for the journal."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from appliance import catalog
from appliance.daemon.events import Happening, happenings
from appliance.daemon.served import ServingSnapshot
from appliance.engines import CrashReport, EngineSnapshot, EngineState
from appliance.errors import EngineFailed
from appliance.operations.machine.survey import Note

REF = catalog.load().resolve("smollm2-135m-instruct")
CRASH = CrashReport(
    at=50.0, message="The engine ended while serving (signal 9 (SIGKILL)).", exit="signal 9 (SIGKILL)",
    cause="It was killed.", hint="Close other programs.", last_lines=(), flags=(), build="b", uptime_s=9.0,
    requests=3,
)  # fmt: skip
ENGINE = EngineSnapshot(
    id="m", model="m", kind="xllamacpp", build="xllamacpp 2026", pid=1, state="ready", gpu_layers=12,
    n_layer=30, ctx=4096, parallel=2, slots_busy=0, tokens_per_second=None, restarts=0, started_at=10.0,
    ready_at=12.5, error=None, cause=None, hint=None, last_lines=(), log_file=None, out_of_memory=None,
    buffers={},
)  # fmt: skip
NOTHING = ServingSnapshot()


def at(state: EngineState, engine: EngineSnapshot | None = None, loaded: float = 1.0) -> ServingSnapshot:
    return ServingSnapshot(ref=REF, state=state, engine=engine, loaded_since=loaded)


def kinds(*snapshots: ServingSnapshot) -> list[str]:
    """The events of a walk through these snapshots."""
    pairs = pairwise(snapshots)
    return [one.kind for before, now in pairs for one in happenings(before, now)]


def test_a_load_is_told_once_with_what_it_became() -> None:
    loading = at("loading", replace(ENGINE, state="loading", ready_at=None))
    ready = at("ready", ENGINE)
    (event,) = happenings(loading, ready)
    assert event == Happening(
        "loaded",
        REF.ref,
        f"{REF.ref} is loaded.",
        "xllamacpp 2026, 12 of 31 layers on the GPU, 2 x 4096 tokens, after 2.5 s",
    )
    assert kinds(ready, at("busy", ENGINE), at("ready", ENGINE)) == []


def test_a_crash_and_the_way_back() -> None:
    down = replace(ENGINE, state="starting", crash=CRASH, restarts=1, ready_at=None)
    back = replace(ENGINE, crash=CRASH, restarts=1, ready_at=60.0)
    assert kinds(at("busy", ENGINE), at("starting", down), at("loading", down), at("ready", back)) == [
        "crashed",
        "restarted",
    ]
    (crashed,) = happenings(at("busy", ENGINE), at("starting", down))
    assert crashed.text == f"{REF.ref}: The engine ended while serving (signal 9 (SIGKILL))."
    assert crashed.detail == "It was killed. Close other programs."


def test_giving_up_is_told_once_with_why() -> None:
    failed = replace(at("failed"), error=EngineFailed("It hangs.", cause="No sign.", hint="Look."))
    (event,) = happenings(at("loading"), failed)
    assert (event.kind, event.text, event.detail) == ("failed", f"{REF.ref}: It hangs.", "No sign. Look.")
    assert kinds(failed, failed, at("absent")) == []  # what had failed is not unloaded


def test_an_unload_a_new_load_and_another_plan() -> None:
    anew = at("ready", replace(ENGINE, ready_at=99.0), loaded=90.0)
    note = Note("replanned", "Other programs took the memory.", None, 1.0)
    assert kinds(at("ready", ENGINE), at("stopping", ENGINE), at("absent")) == ["unloaded"]
    assert kinds(at("absent"), at("starting", loaded=90.0), anew) == ["loaded"]
    assert kinds(anew, replace(at("starting"), replanned=note)) == ["replanned"]


def test_nothing_happens_where_no_model_is() -> None:
    assert happenings(NOTHING, NOTHING) == ()
    assert kinds(NOTHING, at("starting"), at("loading")) == []
