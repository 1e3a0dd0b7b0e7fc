"""The panels: what each says about good, bad and unknown values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import documents
from tests.tui.test_state import LOST, view, with_engine
from tui.frame import PanelView
from tui.lines import plain, width_of
from tui.views.downloads import downloads_panel
from tui.views.engine import engine_panel
from tui.views.gpu import gpu_panel
from tui.views.host import host_panel
from tui.views.notes import notes_panel
from tui.views.requests import requests_panel
from tui.views.residents import other_lines, others_panel
from tui.views.route import route_panel


def text(panel: PanelView) -> str:
    """Title, scope and lines of a panel."""
    return "\n".join([f"{panel.title} | {plain(panel.scope)}", *map(plain, panel.lines)])


def gpu(**changes: Any) -> dict[str, Any]:
    """The normal document with a changed GPU."""
    document = documents.normal()
    document["gpus"][0] |= changes
    return document


def engine(**changes: Any) -> dict[str, Any]:
    """The normal document with a changed engine."""
    document = documents.normal()
    document["engines"][0] |= changes
    return document


def test_engine_shows_split_reason_and_speed() -> None:
    shown = text(engine_panel(view(), 76, compact=False))
    assert "Engine | ● ready · up 2 h 14 m" in shown
    assert "GPU 35 " in shown
    assert " 30 CPU of 65" in shown
    assert "✓ measured: 35 of 65 layers fit" in shown
    assert "8 192 per request · KV f16 2.00 GiB" in shown
    assert "decode 5.9 t/s · slots 1/2" in shown
    assert "restarts" not in shown


def test_estimated_and_measured_are_never_shown_alike() -> None:
    document = documents.normal()
    document["plan"]["measured"] = False
    assert "~ estimated: 35 of 65" in text(engine_panel(view(document), 76, compact=False))
    assert "~ 35 of 65 layers" in text(engine_panel(view(document), 46, compact=False))


def test_fewer_layers_than_planned_are_told() -> None:
    shown = text(engine_panel(view(engine(gpu_layers=20)), 70, compact=False))
    assert "GPU 20 " in shown
    assert "(planned 35)" in shown


def test_a_split_that_was_not_read_back_is_marked() -> None:
    assert "~GPU 35" in text(engine_panel(view(engine(gpu_layers=None)), 60, compact=False))


def test_an_unknown_engine_is_na_not_zero() -> None:
    document = {"model": {"ref": "m"}, "engines": [{"id": "e", "state": "ready"}]}
    shown = text(engine_panel(view(document), 60, compact=False))
    assert "Split    n/a" in shown
    assert "n/a per request · KV n/a" in shown
    assert "decode n/a · slots n/a" in shown
    assert "pid n/a" in shown


def test_restarts_are_shown_when_there_were_any() -> None:
    assert "restarts 2" in text(engine_panel(view(engine(restarts=2)), 60, compact=False))


def test_other_models_are_listed_with_what_matters_first() -> None:
    shown = text(others_panel(view(documents.several()), 96, compact=False))
    assert shown.startswith("Other models | 2 loaded · m lists all\n✖ failed   phi-4:Q4_K_M")
    assert "● busy     gemma-3-270m:Q4_K_M  slots 2/4 · makes way for qwen3-4b:Q4_K_M · GPU 19/19" in shown
    assert "◐ loading  qwen3-4b:Q4_K_M      3 waiting · 25 % · 4.0 s so far · takes ~16 s" in shown
    assert others_panel(view(documents.several()), 76, compact=True).lines == ()
    assert others_panel(view(), 96, compact=False).lines == ()


@pytest.mark.parametrize("width", [54, 76, 96, 136])
def test_other_models_keep_their_state_name_and_slots_on_one_line(width: int) -> None:
    for one in other_lines(view(documents.several()), width, 9):
        assert width_of(one) <= width
    assert "slots 2/4" in "\n".join(map(plain, other_lines(view(documents.several()), width, 9)))


def test_more_models_than_there_is_room_for_are_counted() -> None:
    rows = [documents.resident(f"model-{n}:Q4") for n in range(9)]
    lines = other_lines(view(documents.normal() | {"engines": rows}), 96, 4)
    assert [plain(one).split()[2] for one in lines[:3]] == [f"model-{n}:Q4" for n in (1, 2, 3)]
    assert plain(lines[3]) == "and 5 more; m lists them"


def test_the_short_form_lists_other_models_in_the_engine_panel() -> None:
    assert "◐ loading  qwen3-4b:Q4_K_M" in text(engine_panel(view(documents.several()), 76, compact=True))
    assert "qwen3-4b" not in text(engine_panel(view(documents.several()), 54, compact=False))


def test_a_failed_default_does_not_hide_that_others_answer() -> None:
    document = documents.several() | {"remotes": []}
    document["engines"][0] |= {"state": "failed", "error": "It ended."}
    shown = text(engine_panel(view(document), 76, compact=True))
    assert "Requests for it are refused; other models answer." in shown
    assert "● busy     gemma-3-270m:Q4_K_M" in shown


def test_how_long_the_default_stays_stands_in_its_frame() -> None:
    assert "· pinned" in text(engine_panel(view(engine(pinned=True, unload_at=None)), 76, compact=False))
    later = engine(unload_at=documents.NOW + 1_800)
    assert "· unloads in 30 min" in text(engine_panel(view(later), 76, compact=False))
    gone = engine(unload_at=documents.NOW + 1_800, state="absent")
    assert "unloads" not in text(engine_panel(view(gone), 76, compact=False))


def test_a_load_says_how_long_it_takes() -> None:
    document = documents.loading()
    document["engines"][0]["load_estimate_s"] = 40.0
    assert "43 % · 18.0 s so far, takes ~40 s" in text(engine_panel(view(document), 60, compact=False))


def test_stopped_says_which_key_starts_it() -> None:
    assert "not running; s starts it" in text(engine_panel(view(with_engine("absent")), 60, compact=False))


@pytest.mark.parametrize("compact", [False, True])
def test_what_a_person_stopped_says_that_requests_load_nothing(compact: bool) -> None:
    stopped = with_engine("absent")
    assert "person" not in text(engine_panel(view(stopped), 60, compact=compact))
    shown = text(engine_panel(view(stopped | {"halted": True}), 60, compact=compact))
    assert "stopped by a person: requests load nothing until" in shown
    assert "appliance models load MODEL or key r" in " ".join(shown.split())


def test_failed_says_what_why_and_what_to_do() -> None:
    shown = text(engine_panel(view(documents.failed()), 96, compact=False))
    assert "What     The engine ended while loading (exit code 1).\n" in shown
    assert "Why      The GPU ran out of memory." in shown
    assert "Do       Free GPU memory" in shown
    assert "E ggml_cuda: cudaMalloc failed" in shown
    assert "Requests still go to the remote." in shown


@pytest.mark.parametrize("what", ["Two parts: a colon between.", "Two sentences. In one text."])
def test_what_happened_is_not_cut_at_its_punctuation(what: str) -> None:
    document = documents.failed()
    document["engines"][0] |= {"error": what, "cause": None}
    shown = text(engine_panel(view(document), 96, compact=False))
    assert f"What     {what}\n" in shown
    assert "Why" not in shown


def test_failed_without_a_remote_does_not_promise_one() -> None:
    document = documents.failed() | {"remotes": []}
    document["engines"][0] |= {"error": None, "cause": None, "hint": None, "last_lines": []}
    shown = text(engine_panel(view(document), 96, compact=False))
    assert "Requests are refused until it runs." in shown
    assert "What     The engine ended without a reason." in shown
    assert "Why" not in shown
    assert "Do       r  plan again and start" in shown


def test_loading_shows_progress_and_last_lines() -> None:
    shown = text(engine_panel(view(documents.loading()), 60, compact=False))
    assert "43 % · 18.0 s so far" in shown
    assert "offloading 35 repeating layers" in shown
    document = documents.loading()
    document["engines"][0]["load_progress"] = None
    unknown = text(engine_panel(view(document), 60, compact=False))
    assert "Loading  18.0 s so far" in unknown


def test_before_contact_the_error_stands_in_the_panel() -> None:
    shown = text(engine_panel(view(snapshot=None, lost=LOST), 60, compact=False))
    assert "No contact | ✖ daemon lost\nNo daemon.\nIt ended.\nStart it." in shown


def test_the_short_form_carries_route_and_queue() -> None:
    shown = text(engine_panel(view(), 76, compact=True))
    assert "remote ● 41 ms vllm.lan:8000 · 2 queued ~3.2 s" in shown
    assert "slots 1/2 · decode 5.9 t/s" in shown


def test_route_shows_queue_with_lanes_and_what_left_the_machine() -> None:
    shown = text(route_panel(view(), 60))
    assert "Route | local first" in shown
    assert "Queue    1 interactive, 1 batch ~3.2 s" in shown
    assert "Remote   ● 41 ms  vllm.lan:8000" in shown
    assert "132 local · 9 remote · 2 err" in shown
    assert "Serving  127.0.0.1:8417/v1" in shown


@pytest.mark.parametrize(
    ("remotes", "expected"),
    [
        ([], "– none configured"),
        ([{"name": "v", "state": "down", "error": "refused", "url": "http://h"}], "✖ down  v: refused"),
        ([{"name": "v", "state": "unknown", "url": "http://h/v1"}], "n/a  h"),
        ([{"name": "v", "state": "up", "url": "http://h/v1"}, {"name": "w", "state": "up"}], "● up  h +1"),
    ],
)
def test_remotes(remotes: list[dict[str, Any]], expected: str) -> None:
    assert f"Remote   {expected}" in text(route_panel(view(documents.normal() | {"remotes": remotes}), 60))


def test_gpu_memory_is_split_into_engine_others_and_free() -> None:
    shown = text(gpu_panel(view(), 96, compact=False))
    assert "engine 11.06 · other 0.40 · free 0.53" in shown
    assert "● cool · speed ×1.00 · every 1 s · 46 s shown" in shown
    assert "limit 200 W" in shown
    assert "slows at 83 °C" in shown


def test_unreadable_sensors_are_na_and_no_message() -> None:
    unknown = dict.fromkeys(("total", "free", "used_by_engine", "temperature", "power", "utilisation"))
    shown = text(gpu_panel(view(gpu(**unknown, slowdown_at=None, power_limit=None)), 96, compact=False))
    assert "n/a of n/a GiB" in shown
    assert "Util        n/a" in shown
    assert "limit n/a" in shown
    assert "slows at n/a" in shown
    assert " 0 " not in shown.partition("\n")[2]


def test_heat_is_said_in_words_with_the_factor() -> None:
    document = gpu(reasons=["hw_thermal"], temperature=84.0) | {
        "thermal": "throttled", "factor": 0.71, "thermal_message": "decode is at 71 % of usual",
    }  # fmt: skip
    shown = text(gpu_panel(view(document), 96, compact=False))
    assert "! throttled · speed ×0.71" in shown
    assert "hw thermal" in shown
    assert "! decode is at 71 % of usual" in shown


def test_without_a_heat_state_no_speed_factor_is_claimed() -> None:
    document = gpu(reasons=None) | {"thermal": "unknown", "factor": 1.0}
    assert "| heat n/a · every 1 s" in text(gpu_panel(view(document), 96, compact=False))
    assert "speed" not in text(gpu_panel(view(document), 76, compact=True))


@pytest.mark.parametrize("compact", [False, True])
def test_reasons_that_cannot_be_read_are_na(compact: bool) -> None:
    assert "throttling n/a" in text(gpu_panel(view(gpu(reasons=None)), 96, compact))
    assert "throttling" not in text(gpu_panel(view(gpu(reasons=[])), 96, compact))


def test_a_stale_sample_keeps_its_value_and_says_its_age() -> None:
    panel = gpu_panel(view(gpu(age_s=12.0)), 96, compact=False)
    assert "! 12 s old" in plain(panel.scope)
    assert {span.tone for row in panel.lines for span in row} == {"muted"}
    assert "97 %" in text(panel)


def test_no_gpu_is_not_an_error() -> None:
    panel = gpu_panel(view(documents.cpu_only()), 96, compact=False)
    assert "GPU | heat n/a\nRunning on CPU: NVML library not found" in text(panel)
    assert all(span.tone == "plain" for row in panel.lines for span in row)
    assert panel.border == "muted"
    plain_cpu = documents.cpu_only() | {"notes": []}
    assert "Running on CPU: no GPU: all 30 layers" in text(gpu_panel(view(plain_cpu), 96, compact=False))


def test_several_gpus_are_listed_by_name() -> None:
    document = documents.normal()
    document["gpus"].append(document["gpus"][0] | {"id": "GPU-1", "name": "Tesla"})
    shown = text(gpu_panel(view(document), 96, compact=False))
    assert shown.startswith("2 GPUs | ")
    assert "1 · Tesla" in shown


def test_host_shows_what_is_used_and_na_for_the_rest() -> None:
    assert "21.4 of 62.7 GiB" in text(host_panel(view(), 96, compact=False))
    unknown = text(host_panel(view({}), 76, compact=True))
    assert "CPU   n/a" in unknown
    assert "RAM n/a/n/a GiB" in unknown
    assert "Disk n/a" in unknown


def test_requests_say_where_they_went_and_why() -> None:
    shown = text(requests_panel(view(), 96, compact=False))
    assert "Requests | 1 running · 2 queued" in shown
    assert "…  streaming" in shown
    assert "200  over local context" in shown
    assert "499  client went away" in shown
    assert " In " not in text(requests_panel(view(), 76, compact=True))


def test_a_degraded_answer_is_never_silent() -> None:
    document = documents.normal()
    document["requests"] = {
        "running": [],
        "recent": [{"status": 200, "degraded": ["throttled", "from_tomorrow"]}],
    }
    assert "200  throttled, from_tomorrow" in text(requests_panel(view(document), 120, compact=False))


def test_without_requests_a_first_one_is_offered() -> None:
    assert "curl http://127.0.0.1:8417/v1/chat/completions" in text(
        requests_panel(view(documents.empty()), 96, False)
    )
    assert "No requests yet." in text(requests_panel(view({}), 96, compact=False))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "43 %  5.7/13.3 GiB · 38.2 MiB/s · 3 m 24 s left"),
        ({"phase": "failed", "message": "checksum differs"}, "failed: checksum differs"),
        ({"phase": "done"}, "verified  13.30 GiB"),
        ({"phase": "waiting", "message": "for the disk"}, "waiting: for the disk"),
        ({"phase": "verifying"}, "verifying · 5.7/13.3 GiB"),
        (
            {"total": None, "rate": None, "eta_s": None, "resumable": False},
            "5.7/n/a GiB · starts over after a stop",
        ),
    ],
)
def test_downloads(changes: dict[str, Any], expected: str) -> None:
    document = documents.loading()
    document["downloads"][0] |= changes
    assert expected in text(downloads_panel(view(document), 100))


def test_notes_say_what_to_do() -> None:
    shown = notes_panel(view(documents.cpu_only()), 96, compact=False)
    assert "appliance engines install cuda" in text(shown)
    assert len(notes_panel(view(documents.cpu_only()), 96, compact=True).lines) == 1
    assert notes_panel(view(), 96, compact=False).lines == ()
