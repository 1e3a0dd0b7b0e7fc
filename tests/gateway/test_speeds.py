"""What was measured decides: heat and `fastest` without a queue, over scripted sides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines import Endpoint
from appliance.gateway.data import GATE
from appliance.gateway.speeds import Sample, Speeds
from appliance.routing import Features, LocalView, RemoteView
from tests.gateway.house import TINY, House
from tests.gateway.upstream import TIMINGS, Script

_AWAY = {"X-Appliance-Route": "remote"}
_PINNED = {"X-Appliance-Route": "local"}
_VIEW = LocalView("ready", 1, 0, 0, 8, 0.0, 4096, "cool", 1.0, serves=True)
_REMOTE = RemoteView("vllm", up=True, has_model=True, max_model_len=None)
_SEEN = Sample(prompt_tokens=100, prefill_s=0.5, ttft_s=0.6, tokens_out=50, decode_per_s=25.0)


async def _reason(house: House, headers: dict[str, str] | None = None, **body: Any) -> str:
    async with house.post(headers=headers, **body) as got:
        assert got.status == 200
        await got.read()
        return str(got.headers["X-Appliance-Reason"])


def _speaks(prompt_per_s: float = 350.0, decode_per_s: float = 42.5) -> Script:
    return Script(
        timings={**TIMINGS, "prompt_per_second": prompt_per_s, "predicted_per_second": decode_per_s}
    )


async def test_heat_that_pushes_decode_under_the_goal_sends_it_to_a_remote_nobody_has_measured(
    house: House,
) -> None:
    house.remote.up = True
    assert await _reason(house) == "local.ok"
    house.local.thermal, house.local.factor = "throttled", 0.3  # 42.5 * 0.3 < 15
    assert await _reason(house) == "remote.thermal"
    assert await _reason(house, stream=True) == "remote.thermal"
    assert await _reason(house, _PINNED) == "local.pinned"
    assert await _reason(house, {"X-Appliance-Priority": "batch"}) == "local.ok"
    house.local.factor = 0.5  # 21 tokens/s are enough
    assert await _reason(house) == "local.ok"
    house.local.thermal, house.local.factor = "warm", 0.3
    assert await _reason(house) == "local.ok"


async def test_heat_that_pushes_the_first_token_over_the_goal_sends_it_away(house: House) -> None:
    house.remote.up = True
    house.engine.script = _speaks(prompt_per_s=7.0)
    prompt = [{"role": "user", "content": "x" * 60}]  # 10 tokens: 1.4 s, goal 2 s
    assert await _reason(house, messages=prompt) == "local.ok"
    assert await _reason(house, messages=prompt) == "local.ok"
    house.local.thermal, house.local.factor = "throttled", 0.6
    assert await _reason(house, messages=prompt) == "remote.thermal"
    assert await _reason(house, messages=prompt) == "remote.thermal", "also when the remote is measured"
    house.local.thermal = "cool"
    assert await _reason(house, messages=prompt) == "local.ok"


async def test_without_a_remote_a_hot_machine_still_answers(house: House) -> None:
    assert await _reason(house) == "local.ok"
    house.local.thermal, house.local.factor = "throttled", 0.1
    assert await _reason(house) == "local.ok"


@pytest.mark.parametrize(("remote_per_s", "reason"), [(1_000.0, "remote.faster"), (0.5, "local.ok")])
async def test_fastest_works_once_both_sides_were_measured(
    house: House, remote_per_s: float, reason: str
) -> None:
    house.remote.up = True
    house.configure(policy="fastest")
    house.engine.script = _speaks(decode_per_s=2.0)
    house.far.script = _speaks(decode_per_s=remote_per_s)
    assert await _reason(house) == "local.ok"
    assert await _reason(house) == "local.ok", "the remote is unknown"
    assert await _reason(house, _AWAY) == "remote.forced"
    assert await _reason(house) == reason


async def test_what_was_measured_hot_is_kept_at_usual_speed(house: House) -> None:
    house.local.thermal, house.local.factor = "throttled", 0.5
    assert await _reason(house) == "local.ok"
    local = house.runner.app[GATE].view(TINY, Features("tiny", prompt_tokens=70)).local
    assert local is not None
    assert local.decode_per_s == pytest.approx(85.0)
    assert local.prefill_s == pytest.approx(0.1)
    assert local.decode_s == pytest.approx(3 / 85)


async def test_another_engine_process_starts_unknown(house: House) -> None:
    assert await _reason(house) == "local.ok"
    gate, ask = house.runner.app[GATE], Features("tiny", prompt_tokens=70)
    view = gate.view(TINY, ask).local
    assert view is not None
    assert view.decode_per_s == pytest.approx(42.5)
    house.local.own = Endpoint(house.engine.url, None, "another-key", 2)
    view = gate.view(TINY, ask).local
    assert view is not None
    assert (view.prefill_s, view.decode_s, view.decode_per_s) == (None, None, None)


async def test_a_reply_that_broke_off_teaches_nothing(house: House) -> None:
    house.engine.script = Script(breaks_after=2)
    async with house.post() as got:
        assert got.status == 502
    view = house.runner.app[GATE].view(TINY, Features("tiny", prompt_tokens=70)).local
    assert view is not None
    assert view.prefill_s is None


def test_nothing_is_known_before_the_first_reply() -> None:
    speeds, ask = Speeds(), Features("m", prompt_tokens=10, max_tokens=10)
    assert speeds.local("m:Q", ask, _VIEW, 1) == _VIEW
    assert speeds.remote("m:Q", ask, _REMOTE) == _REMOTE


def test_the_estimates_follow_what_was_measured() -> None:
    speeds, ask = Speeds(), Features("m", prompt_tokens=400)
    speeds.observe_local("m:Q", _SEEN, factor=1.0, incarnation=1)
    made = speeds.local("m:Q", ask, _VIEW, 1)
    assert made.prefill_s == pytest.approx(2.0)
    assert made.decode_s == pytest.approx(2.0)
    assert speeds.local("m:Q", replace(ask, max_tokens=10), _VIEW, 1).decode_s == pytest.approx(0.4)
    assert speeds.local("m:Q", replace(ask, kind="embedding"), _VIEW, 1).decode_s == 0.0
    assert speeds.local("m:Q", replace(ask, prompt_tokens=None), _VIEW, 1).prefill_s is None
    assert speeds.local("other:Q", ask, _VIEW, 1) == _VIEW
    assert speeds.local("m:Q", ask, replace(_VIEW, prefill_s=7.0), 1).prefill_s == 7.0
    speeds.observe_remote("vllm", "m:Q", _SEEN)
    far = speeds.remote("m:Q", ask, _REMOTE)
    assert far.ttft_s == pytest.approx(0.6)
    assert far.finish_s == pytest.approx(2.6)
    assert speeds.remote("m:Q", ask, replace(_REMOTE, name="other")).ttft_s is None


def test_a_long_prompt_counts_for_more_than_many_short_ones() -> None:
    speeds = Speeds()
    for _ in range(3):  # 10 tokens in 0.1 s: overhead
        speeds.observe_local(
            "m:Q", replace(_SEEN, prompt_tokens=10, prefill_s=0.1), factor=1.0, incarnation=1
        )
    speeds.observe_local("m:Q", replace(_SEEN, prompt_tokens=4000, prefill_s=4.0), factor=1.0, incarnation=1)
    seconds = speeds.local("m:Q", Features("m", prompt_tokens=4000), _VIEW, 1).prefill_s
    assert seconds == pytest.approx(4.0, rel=0.1)


def test_one_token_alone_says_nothing_about_decode() -> None:
    speeds = Speeds()
    speeds.observe_remote("vllm", "m:Q", replace(_SEEN, tokens_out=1, decode_per_s=1e6))
    far = speeds.remote("m:Q", Features("m", prompt_tokens=1), _REMOTE)
    assert far.ttft_s == pytest.approx(0.6)
    assert far.finish_s is None


@given(
    st.lists(
        st.tuples(st.floats(0.05, 1.0), st.integers(1, 5000), st.integers(2, 5000)), min_size=1, max_size=20
    )
)
def test_a_machine_of_constant_usual_speed_is_known_as_such_whatever_the_heat(
    replies: list[tuple[float, int, int]],
) -> None:
    """200 tokens/s of prefill and 20 of decode when well, times the factor of each moment."""
    speeds = Speeds()
    for factor, prompt, out in replies:
        prefill_s = prompt / (200 * factor)
        seen = Sample(prompt, prefill_s, prefill_s, out, 20 * factor)
        speeds.observe_local("m:Q", seen, factor=factor, incarnation=1)
    made = speeds.local("m:Q", Features("m", prompt_tokens=1000, max_tokens=1), _VIEW, 1)
    assert made.prefill_s == pytest.approx(5.0)
    assert made.decode_per_s == pytest.approx(20.0)
    assert made.decode_s == pytest.approx(0.05)
