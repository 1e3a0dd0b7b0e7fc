"""`appliance bench tune` as a person and a script meet it; the measuring itself has tests of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.cli import bench_text
from appliance.operations.tuning import tuning
from tests.cli.indoors import Indoors
from tests.client.stub_daemon import Script, StubDaemon
from tests.engines.launches import paths_in


@pytest.fixture
def home(tmp_path: Path, smollm2_path: Path) -> Indoors:
    """A user who took the model in."""
    made = Indoors(tmp_path / "h")
    assert made.run("models", "import", str(smollm2_path)).code == 0
    return made


def row(
    name: str, words: str, speeds: tuple[float, ...] | None, ratios: tuple[float, ...] | None
) -> dict[str, Any]:
    keys = ("prefill", "decode", "many")
    return {
        "name": name,
        "words": words,
        "speeds": None if speeds is None else dict(zip(keys, speeds, strict=True)),
        "ratios": None if ratios is None else dict(zip(keys, ratios, strict=True)),
        "failed": None if speeds else "it ended with code 1",
    }


def document(**changes: Any) -> dict[str, Any]:
    return {
        "model": "m:Q4_1", "engine": "xllamacpp", "goal": "throughput", "best": "ubatch 256", "kept": True,
        "why": "prefill x1.12, decode x1.01 of the engine's own defaults",
        "rows": [
            row("engine", "the engine's own defaults", (500.0, 60.0, 140.0), (1.0, 1.0, 1.0)),
            row("ubatch 256", "256 tokens at once", (560.0, 60.5, 141.0), (1.12, 1.01, 1.01)),
            row("flash off", "flash attention off", None, None),
        ],
        "pause": {"goal_s": 0.5, "batch_s": 3.66, "wanted": 256},
        "notes": ["The machine runs on its battery: on mains power other settings may be the best."],
    } | changes  # fmt: skip


def test_the_outcome_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    bench_text.outcome(document())
    text = " ".join(capsys.readouterr().out.split())
    assert "560.0 x1.12" in text
    assert "256 tokens at once" in text
    assert "did not start" in text
    assert "Kept: 256 tokens at once. Why: prefill x1.12" in text
    assert "holds running streams up for 3.7 s at a time" in text
    assert "batches of 256 tokens: --goal latency" in text
    assert "! The machine runs on its battery" in text


def test_what_was_not_kept_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    bench_text.outcome(document(kept=False, pause=None, notes=[]))
    text = capsys.readouterr().out
    assert "Not kept" in text
    assert "running streams" not in text


def test_what_would_be_tried_is_said_without_a_measurement(home: Indoors) -> None:
    done = home.run("bench", "tune", "smollm2-135m-instruct", "--dry-run", "--json", "--parallel", "2")
    assert done.code == 0, done.err
    found = done.document
    assert found["slots"] == 2
    assert [one["name"] for one in found["tried"]][:2] == ["engine", "plan"]
    assert len(found["tried"]) <= 8
    assert not (home.root / "state" / "tuned.json").exists()
    text = home.run("bench", "tune", "--dry-run").out
    assert "the engine's own defaults" in text


def test_a_busy_machine_is_not_measured(home: Indoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "load_average", lambda: 9_999.0)
    done = home.run("bench", "tune", "smollm2-135m-instruct")
    assert done.code == 1
    assert "too busy" in done.err
    assert "--anyway" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("no-such-model",), 4, "no-such-model"),
        (("smollm2-135m-instruct", "--engine", "llama-cpp-python"), 2, "llama-cpp-python"),
        (("smollm2-135m-instruct", "--goal", "beauty"), 2, "--goal"),
        (("smollm2-135m-instruct", "--rounds", "0"), 2, "--rounds"),
    ],
)
def test_what_can_not_be_tuned_says_why(
    home: Indoors, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.setattr(tuning, "load_average", lambda: 0.0)
    done = home.run("bench", "tune", *arguments)
    assert done.code == code, done.err
    assert said in done.err


def test_beside_a_loaded_model_nothing_is_measured(home: Indoors) -> None:
    script = Script()
    stub = StubDaemon(paths_in_home(home), script).start()
    try:
        assert script.status["engines"], "the stub serves a model"
        done = home.run("bench", "tune", "smollm2-135m-instruct")
    finally:
        stub.stop()
    assert done.code == 1
    assert "A model is loaded" in done.err
    assert "appliance down" in done.err


def paths_in_home(home: Indoors) -> Any:
    made = paths_in(home.root)
    return type(made)(made.config, made.data, made.state, made.cache, home.root / "run")
