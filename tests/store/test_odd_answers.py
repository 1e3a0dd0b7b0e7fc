"""Answers with figures that no honest server sends, and waits of no length."""

from __future__ import annotations

import os
import time

import pytest

from appliance.paths import Paths
from appliance.store import Store
from appliance.store.limiter import Bucket
from appliance.store.patience import Patient, Terms
from appliance.store.progress import Reporter
from appliance.store.responses import Asked, Retry, judge, wait_of
from appliance.store.segments import Span, Window
from appliance.store.threads import StopFlag
from appliance.store.types import Limits, no_progress
from tests.store.helpers import at_url, gguf
from tests.store.server import Host

MANY = "9" * 5000
ASKED = Asked("tiny.gguf", 1000, "0" * 64, 100, 200, "host")


@pytest.mark.parametrize("digits", [MANY, "²", "١٢"])
def test_odd_figures_are_another_try_and_no_crash(digits: str) -> None:
    with pytest.raises(Retry):
        judge(206, {"Content-Range": f"bytes 100-{digits}/1000"}, ASKED)
    with pytest.raises(Retry):
        judge(416, {"Content-Range": f"bytes */{digits}"}, ASKED)
    assert judge(200, {"Content-Length": digits}, ASKED).whole
    assert wait_of({"Retry-After": digits}, time.time()) is None


async def test_a_wait_of_no_length_does_not_burn_the_tries() -> None:
    limits = Limits(attempts=6, backoff_s=0.5)
    report = Reporter("a:F32", None, resumable=True, publish=no_progress)
    terms = Terms(limits, 1, Bucket(), os.environ, report, StopFlag())
    waits = [Patient("host", "tiny.gguf", terms).failed(time.monotonic(), "503", 0.0) for _ in range(3)]
    assert min(waits) >= 0.5 * 0.75
    assert Patient("host", "tiny.gguf", terms).failed(time.monotonic(), "503", 7.0) == 7.0


def test_a_piece_of_a_window_that_was_made_anew_is_no_error() -> None:
    window = Window([(0, 64)], chunk=16, segment=32, ahead=64)
    window.give_back(Span(0, 8, 16, 0.0))
    assert window.first_missing == 0


async def test_a_removal_by_pins_leaves_what_other_pins_brought(
    store: Store, host: Host, paths: Paths
) -> None:
    """An import that can't be entered takes back its own files, not those of a model of the same name."""
    old = at_url(host.url, host.body)
    kept = await store.pull(old)
    host.body = gguf(seed=2)
    new = at_url(host.url, host.body)
    await store.pull(new)
    store.remove(new)
    assert kept.main.exists()
    assert [stored.main for stored in store.list()] == [kept.main]
