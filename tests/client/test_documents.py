"""Documents are read tolerantly: odd values become None, unknown keys are ignored, text is clean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.client import DownloadRow, EngineRow, GpuRow, PlanDocument, RequestRow, StatusSnapshot
from appliance.client.library import CatalogRow, EngineList, LogPage, SettingRow, names
from tests.client import documents

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_the_normal_document_is_read_completely() -> None:
    shot = StatusSnapshot.parse(documents.normal())
    assert shot.daemon.pid == 4711
    assert shot.engine is not None
    assert (shot.engine.gpu_layers, shot.engine.n_layer, shot.engine.ctx) == (35, 64, 8192)
    assert shot.gpus[0].used_by_engine == 11_326 << 20
    assert (shot.queue.waiting, shot.queue.lanes) == (2, {"interactive": 1, "batch": 1})
    assert shot.remotes[0].latency_ms == 41.0
    assert (shot.today.local, shot.today.remote, shot.today.errors) == (132, 9, 2)
    assert shot.plan is not None
    assert shot.plan.reasons[0].text.startswith("35 of 65 layers")
    assert shot.running[0].status is None
    assert shot.recent[1].degraded == ("remote",)
    assert (shot.policy, shot.gateway_url) == ("local-first", "http://127.0.0.1:8417/v1")


def test_nothing_known_is_none_never_zero() -> None:
    shot = StatusSnapshot.parse({})
    assert shot.daemon.pid is None
    assert shot.queue.waiting is None
    assert shot.today.errors is None
    assert shot.host.ram_total is None
    assert (shot.engine, shot.model, shot.plan, shot.factor) == (None, None, None, None)
    assert (shot.engines, shot.gpus, shot.recent) == ((), (), ())


@pytest.mark.parametrize("odd", [True, "12", float("nan"), float("inf"), [], {}, None, 10**400])
def test_an_odd_number_is_unknown(odd: Any) -> None:
    engine = EngineRow.parse({"id": "e", "pid": odd, "tokens_per_second": odd})
    assert (engine.pid, engine.tokens_per_second) == (None, None)


@pytest.mark.parametrize(
    ("sent", "read"),
    [([], ()), (["SwPowerCap", 1], ("SwPowerCap",)), (None, None), ("text", None), ({}, None)],
)
def test_reasons_that_cannot_be_read_are_unknown_and_not_none_of_them(
    sent: Any, read: tuple[str, ...] | None
) -> None:
    assert GpuRow.parse({"id": "g", "reasons": sent}).reasons == read
    assert GpuRow.parse({"id": "g"}).reasons is None


def test_what_why_and_what_to_do_of_an_engine_are_three_fields() -> None:
    engine = StatusSnapshot.parse(documents.failed()).engine
    assert engine is not None
    assert engine.error == "The engine ended while loading (exit code 1)."
    assert engine.cause == "The GPU ran out of memory."
    assert engine.hint is not None


def test_the_engine_of_the_served_model_is_the_main_one() -> None:
    shot = StatusSnapshot.parse(
        {"model": {"ref": "b:Q8"}, "engines": [{"id": "1", "model": "a:Q4"}, {"id": "2", "model": "b:Q8"}]}
    )
    assert shot.engine is not None
    assert shot.engine.id == "2"


def test_the_default_model_is_the_main_one_whatever_stands_first() -> None:
    shot = StatusSnapshot.parse(
        {"engines": [{"id": "1", "model": "a"}, {"id": "2", "model": "b", "default": True}, {"id": "3"}]}
    )
    assert shot.engine is not None
    assert (shot.engine.ref, [row.ref for row in shot.others]) == ("b", ["a", "3"])
    assert shot.engine_of("a") is shot.engines[0]
    assert shot.engine_of("c") is None


def pool_row(**values: Any) -> EngineRow:
    return EngineRow.parse({"id": "e", "model": "a"} | values)


@pytest.mark.parametrize(
    ("row", "running", "queued"),
    [
        ({"state": "ready", "wanted": 5, "waiting": 2}, 3, 2),
        ({"state": "stopping", "wanted": 1, "waiting": 0}, 1, 1),
        ({"state": "absent", "wanted": 4, "waiting": 0}, 0, 4),
        ({"state": "loading", "wanted": 4, "waiting": 4}, 0, 4),
        ({"state": "busy", "slots_busy": 2}, 2, None),
        ({"state": "busy"}, None, None),
    ],
)
def test_requests_inside_an_engine_are_told_from_those_that_wait(
    row: dict[str, Any], running: int | None, queued: int | None
) -> None:
    parsed = pool_row(**row)
    assert (parsed.running, parsed.queued) == (running, queued)


def test_whom_a_model_makes_way_for_is_named_when_it_is_clear() -> None:
    leaving = {"id": "a", "model": "a", "state": "busy", "makes_way": True, "wanted": 1}
    loading = {"id": "b", "model": "b", "state": "loading", "wanted": 2}
    wanted = {"id": "c", "model": "c", "state": "absent", "wanted": 1}

    def named(*others: dict[str, Any]) -> str | None:
        shot = StatusSnapshot.parse({"engines": [leaving, *others]})
        return shot.makes_way_for(shot.engines[0])

    assert named(loading) == "b"
    assert named(loading, wanted) == "b", "the one that is being loaded has the turn"
    assert named(wanted) == "c"
    assert named(wanted, wanted | {"model": "d"}) is None
    assert named() is None
    kept = StatusSnapshot.parse({"engines": [leaving | {"makes_way": False}, wanted]})
    assert kept.makes_way_for(kept.engines[0]) is None


def test_where_a_model_runs_is_told_from_what_was_read_back() -> None:
    software, real = ({"name": "V", "software": made} for made in (True, False))
    assert pool_row(gpu_layers=0).on_cpu
    assert not pool_row(gpu_layers=None).on_cpu
    assert pool_row(devices=[software]).software
    assert not pool_row(devices=[software, real]).software
    assert not pool_row(devices=[]).software


def test_a_crash_and_adapters_come_along_clean() -> None:
    row = pool_row(
        crash={"message": "M\x1b[2J", "at": 5, "flags": ["x"]}, adapters=[{"name": "l", "scale": 0.5}, 3]
    )
    assert row.crash is not None
    assert (row.crash.message, row.crash.at, row.crash.hint) == ("M[2J", 5.0, None)
    assert [(one.name, one.scale) for one in row.adapters] == [("l", 0.5)]
    assert pool_row(crash="odd", adapters="odd").crash is None


@pytest.mark.parametrize(
    ("ref", "listed", "named"),
    [("a:Q4", ["a:Q4"], True), ("a:Q4", ["a"], True), ("a:Q4", ["a:Q8", "b"], False), ("a:Q4", [], False)],
)
def test_a_list_names_a_model_by_ref_or_by_id(ref: str, listed: list[str], named: bool) -> None:
    assert names(ref, listed) is named


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [
        ({"batch": 3}, {"batch": 3}),
        ({"batch": {"waiting": 2, "running": 1}}, {"batch": 2}),
        ({"batch": None}, {}),
        (None, {}),
    ],
)
def test_lanes_are_counts_of_waiting_requests(lanes: Any, expected: dict[str, int]) -> None:
    assert StatusSnapshot.parse({"queue": {"lanes": lanes}}).queue.lanes == expected


def test_reasons_may_be_lines_or_objects() -> None:
    plan = PlanDocument.parse(
        {"reasons": ["a", {"code": "c", "text": "b", "n_bytes": 3}, 7], "flash_attn": True}
    )
    assert [(r.text, r.n_bytes) for r in plan.reasons] == [("a", None), ("b", 3)]
    assert plan.flash_attn == "True"


def test_degraded_may_be_a_list_or_a_header_text() -> None:
    assert RequestRow.parse({"degraded": "remote,throttled"}).degraded == ("remote", "throttled")
    assert RequestRow.parse({"degraded": ["remote"]}).degraded == ("remote",)
    assert RequestRow.parse({}).degraded == ()


def test_text_is_cleaned_and_raw_is_kept() -> None:
    document = {"model": {"ref": "a", "name": "x\x1b]52;c;evil\x07\u202ey\n"}}
    shot = StatusSnapshot.parse(document)
    assert shot.model is not None
    assert shot.model.name == "x]52;c;evily"
    assert shot.raw == document


def test_small_documents() -> None:
    listing = EngineList.parse(
        {"engines": [{"build": "b1", "sees_gpu": False}], "chosen": {"build": "b1", "reason": "r"}}
    )
    assert (listing.engines[0].build, listing.chosen.build, listing.chosen.reason) == ("b1", "b1", "r")
    page = LogPage.parse({"lines": [{"seq": 1, "line": "a\x1b[2Jb"}, "c", 5], "next": 9})
    assert (page.lines, page.next) == (("a[2Jb", "c"), 9)
    assert SettingRow.parse({"key": "goals.decode", "value": 15, "source": "default"}).value == 15
    assert CatalogRow.parse({"ref": "a:Q4", "use": ["chat", 1], "loaded": True}).use == ("chat",)


@given(JSON)
def test_no_document_raises(document: Any) -> None:
    StatusSnapshot.parse(document)
    StatusSnapshot.parse(dict.fromkeys(documents.normal(), document))
    LogPage.parse(document)
    EngineList.parse(document)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (None, None),
        ("gpu", ("gpu", None, None, None)),
        (
            {"where": "partly", "text": "3 of 9", "how": "rule", "estimated": True},
            ("partly", "3 of 9", "rule", True),
        ),
        ({"where": 5, "how": 3, "estimated": "yes"}, (None, None, None, None)),
        (7, (None, None, None, None)),
        ([], None),
    ],
)
def test_where_a_model_fits_is_read_or_unknown(sent: Any, read: tuple[Any, ...] | None) -> None:
    fits = CatalogRow.parse({"ref": "a:Q4", "fits": sent}).fits
    assert (None if fits is None else (fits.where, fits.text, fits.how, fits.estimated)) == read


def test_a_row_of_an_older_daemon_lacks_what_it_did_not_know() -> None:
    row = CatalogRow.parse({"ref": "a:Q4", "state": "here"})
    assert (row.fits, row.pin, row.arrived, row.disk, row.used_at) == (None, None, None, None, None)
    old = DownloadRow.parse({"id": "1", "ref": "a:Q4", "phase": "failed", "error": "text"})
    assert (old.error, old.paused, old.place, old.limit, old.ended) == (None, None, None, None, True)


def test_a_download_says_what_happened_why_and_what_to_do() -> None:
    error = {"code": "download", "message": "M\x1b[2J", "cause": "C", "hint": None}
    row = DownloadRow.parse({"id": "1", "ref": "r", "phase": "failed", "error": error, "limit": 5.0})
    assert row.error is not None
    assert (row.error.message, row.error.cause, row.error.hint) == ("M[2J", "C", None)
    assert row.limit == 5
