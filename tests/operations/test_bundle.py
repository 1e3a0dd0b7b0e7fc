"""`doctor --bundle`: what is in it, and above all what is not."""

from __future__ import annotations

import dataclasses
import json
import logging
import stat
import time
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from appliance.daemon.surroundings import log_file
from appliance.engines.request_text import RequestText
from appliance.engines.values import CrashReport
from appliance.errors import ApplianceError, UsageError
from appliance.hardware import Machine
from appliance.hardware.types import Gpu, Program
from appliance.journal import Journal
from appliance.journal.rows import Row
from appliance.journal.timeline import Decided, Point
from appliance.operations import doctor
from appliance.operations.bundle import NO_PROMPTS, Packed, pack, packing, parts
from appliance.operations.finding import Finding
from appliance.operations.replay import read, replay, source
from appliance.operations.replay.settings_of import under_of
from appliance.paths import Paths
from appliance.routing import Features, LocalView, RemoteView, View

PROMPT = "the launch code of the blue whale"
KEY = "sk-marker1234567890abcdef"
TOKEN = "tok-m4rk3r-of-the-daemon"
PERSON = "annabella"
LOCAL = LocalView("ready", 2, 0, 0, 64, 0.0, 4096, "critical", 1.0, True, 0.5, 5.0, 40.0, detail=PROMPT)
REMOTE = RemoteView("big", True, True, 32_768, detail=f"HTTP 400: {PROMPT}")


@pytest.fixture(autouse=True)
def _a_quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The survey starts engines to ask for their devices: not what is tested here."""

    async def examine(paths: Paths, daemon_url: str | None) -> tuple[Finding, ...]:
        return (
            Finding("port", "ok", f"the daemon serves {daemon_url}"),
            Finding("remote big", "ok", f"vllm at https://u:{KEY}@10.0.0.5/v1?token={TOKEN}"),
            Finding("folders", "ok", f"/home/{PERSON}/.config/llama-appliance"),
        )

    async def detect() -> Machine:
        gpu = Gpu("GPU-1", 0, "Some GPU", "cuda", 8 << 30, holders=(Program(7, f"{PROMPT} - Browser", 5),))
        return Machine(gpus=(gpu,), ram_total=16 << 30)

    monkeypatch.setattr(doctor, "examine", examine)
    monkeypatch.setattr(packing, "detect_safely", detect)
    monkeypatch.setenv("USER", PERSON)
    monkeypatch.setenv("LOGNAME", PERSON)
    monkeypatch.setenv("HOME", f"/srv/homes/{PERSON}")
    monkeypatch.setenv("BIG_KEY", KEY)


async def scripted(paths: Paths, now: float) -> None:
    """An appliance that has worked for a while, with the marker wherever a request's text may turn up."""
    paths.make()
    journal = Journal(paths.journal_file)
    await journal.open()
    for number in range(3):
        await journal.record(
            Row(
                f"req_{number}", now - 50 + number, PROMPT, "m:Q4", "local", "local.ok", "interactive",
                f"/v1/{PROMPT}" if number else "/v1/chat/completions", 200, 300, 200, 0.0, 90.0, 31.0, 6000.0,
                client=f"{PROMPT} {KEY}", thermal="cool", power="ac", streams=1, plan="p",
            )
        )  # fmt: skip
    await journal.note("crashed", "m:Q4", f"m:Q4: ended; see /srv/homes/{PERSON}/x", f"with Bearer {KEY}")
    points = [
        Point(now - 60 + at, "gpu:GPU-1", name=PROMPT, state="critical", temperature=95.0, headroom=-1.0)
        for at in range(50)
    ]
    view = asdict(View("local-first", 8.0, 2.0, LOCAL, (REMOTE,), 15.0))
    asked = asdict(Features("m", prompt_tokens=300, max_tokens=200))
    decided = Decided(now - 15, "req_9", "first", "m", "remote", "remote.thermal", f"hot; {PROMPT}", "big",
                      asked, view)  # fmt: skip
    await journal.keep(points, [decided], now)
    await journal.close()
    _logs(paths)
    _others(paths)


def _logs(paths: Paths) -> None:
    logger = logging.getLogger("appliance.gateway")
    with log_file(paths):
        logger.error("%s failed", f"/v1/{PROMPT}")
        logger.warning("remote big is down: %s", f"HTTP 500 ({PROMPT})")
        logger.warning('the request said "%s"', PROMPT)
        try:
            raise ValueError(f"{PROMPT}\n{PROMPT}: on a line of its own")
        except ValueError:
            logger.exception("request %s failed", "req_1")
        logging.getLogger("appliance.daemon").info("m:Q4 is unloaded: it was idle, %s", f"key={KEY}")
    verbose = [
        "0.00.304.938 I load_tensors: offloaded 12/31 layers to GPU",
        "0.00.304.979 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB",
        f'0.01.000.000 D srv  log_server_r: request:  {{"prompt": "{PROMPT}"}}',
        f"0.01.000.001 D slot update_slots: prompt token 0: 1 '{PROMPT}'",
        f"0.01.000.002 I load_tensors: {PROMPT}",
        f"load_tensors: offloaded 1/2 layers to GPU, {PROMPT}",
        PROMPT,
        f"CUDA error: out of memory while it said {PROMPT}",
        f"ggml_cuda_init: found 1 CUDA devices ({PROMPT})",
    ]
    (paths.logs / f"engine-{PERSON}s-model.log").write_text("\n".join(verbose))
    (paths.logs / "up.log").write_text(PROMPT)


def _others(paths: Paths) -> None:
    report = CrashReport(1.0, PROMPT, "exit code 1", PROMPT, KEY, (PROMPT,), (), "b", None, 1)
    (paths.state / "crashes").mkdir()
    (paths.state / "crashes" / "engine-m.json").write_text(json.dumps({"crashes": [asdict(report)]}))
    (paths.prompts / "m").mkdir(parents=True)
    (paths.prompts / "m" / "0.bin").write_text(PROMPT)
    (paths.cache / "queue").write_text(PROMPT)
    paths.daemon_file.write_text(json.dumps({"pid": 1, "version": "1", "url": "http://x", "token": TOKEN}))
    paths.config_file.write_text(
        f"""
[governor]
hold = "7s"
[downloads]
mirrors = ["https://hub.example/m"]
[engine]
llama_server = "/srv/homes/{PERSON}/bin/llama-server"
[[remotes]]
name = "big"
url = "https://{PERSON}:{KEY}@10.0.0.5:8000/v1?api_key={KEY}"
api_key_env = "BIG_KEY"
"""
    )


def opened(file: Path) -> dict[str, str]:
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def left_behind(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir() if one.name.startswith(".")]


@pytest.fixture
async def bundle(paths: Paths, tmp_path: Path) -> tuple[Packed, dict[str, str]]:
    await scripted(paths, time.time())
    packed = await pack(paths, tmp_path / "b.zip", "http://127.0.0.1:8417")
    return packed, opened(packed.file)


async def test_no_word_of_a_request_and_no_key_is_anywhere_in_it(
    bundle: tuple[Packed, dict[str, str]], paths: Paths
) -> None:
    packed, members = bundle
    raw = packed.file.read_bytes()
    for where, text in {
        **members,
        "the names": " ".join(members),
        "the archive": raw.decode("latin-1"),
    }.items():
        for marker in (PROMPT, "launch code", "blue whale", KEY, "marker1234", TOKEN, PERSON):
            assert marker not in text, f"{marker} in {where}"
    everything = b"".join(file.read_bytes() for file in paths.state.rglob("*") if file.is_file())
    assert everything.count(PROMPT.encode()) > 10, "the markers were where the bundle looks"
    assert NO_PROMPTS in members["README.txt"]
    assert packed.to_json()["contains_prompts"] is False


async def test_what_is_left_helps(bundle: tuple[Packed, dict[str, str]]) -> None:
    packed, members = bundle
    assert packed.missing == ()
    assert sorted(members) == [
        "README.txt", "doctor.json", "engines.json", "hardware.json", "logs/daemon.log", "logs/engine-1.log",
        "settings.toml", "timeline.jsonl", "version.json",
    ]  # fmt: skip
    daemon = members["logs/daemon.log"]
    assert "ERROR appliance.gateway: [left out]" in daemon
    assert "WARNING appliance.gateway: remote big is down: [left out]" in daemon
    assert "ERROR appliance.gateway: request req_1 failed" in daemon
    assert "\nValueError\n" in daemon
    assert "line " in daemon
    assert "m:Q4 is unloaded: it was idle, key=[hidden]" in daemon
    engine = members["logs/engine-1.log"].splitlines()
    assert engine[1:] == [
        "0.00.304.938 I load_tensors: offloaded 12/31 layers to GPU",
        "0.00.304.979 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB",
        "CUDA error: out of memory",
    ]  # fmt: skip
    assert "6 lines left out" in engine[0]
    assert '"checks"' not in members["doctor.json"]
    findings = {one["check"]: one["detail"] for one in json.loads(members["doctor.json"])}
    assert findings["remote big"] == "vllm at https://10.0.0.5/v1"
    assert findings["folders"] == "~/.config/llama-appliance"
    assert json.loads(members["hardware.json"])["gpus"][0]["holders"] == [{"n_bytes": 5}]
    assert json.loads(members["version.json"])["daemon"] == {"pid": 1, "version": "1", "start_time": None}
    assert 'api_key_env = "BIG_KEY"' in members["settings.toml"]
    assert 'url = "https://10.0.0.5:8000/v1"' in members["settings.toml"]
    assert 'llama_server = "~/bin/llama-server"' in members["settings.toml"]


async def test_a_bundle_can_be_replayed_with_its_own_settings(
    bundle: tuple[Packed, dict[str, str]], paths: Paths
) -> None:
    packed, _ = bundle
    found = source.of_file(packed.file)
    under = under_of(None, found, paths)
    assert (under.name, under.rule.hold) == ("the bundle", 7.0)
    report = replay(read(found.data, found.name), under)
    assert [(moved.before, moved.after) for moved in report.moved if moved.what == "GPU-1"] == [
        ("unknown", "warm"), ("warm", "critical")]  # fmt: skip
    critical = next(moved.at for moved in report.moved if moved.after == "critical")
    assert critical == pytest.approx(report.trace.begins + 7.0)
    (verdict,) = report.verdicts
    assert (verdict.before, verdict.now) == ("remote.thermal", "remote.thermal")
    patient = dataclasses.replace(under, rule=dataclasses.replace(under.rule, hold=100.0))
    (verdict,) = replay(read(found.data, found.name), patient).verdicts
    assert (verdict.before, verdict.now, verdict.differs) == ("remote.thermal", "local.ok", True)


async def test_it_is_private_and_never_replaces_a_file_unasked(paths: Paths, tmp_path: Path) -> None:
    paths.make()
    file = tmp_path / "b.zip"
    file.write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        await pack(paths, file, None)
    assert file.read_text() == "mine"
    await pack(paths, file, None, force=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "README.txt" in opened(file)
    with pytest.raises(UsageError, match="no folder"):
        await pack(paths, tmp_path / "none" / "b.zip", None)
    with pytest.raises(UsageError, match="is a folder"):
        await pack(paths, tmp_path, None)
    assert left_behind(tmp_path) == []


async def test_a_name_that_was_taken_meanwhile_is_left_alone(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.make()
    file = tmp_path / "b.zip"

    async def meanwhile() -> Machine:
        file.write_text("somebody else's")
        return Machine()

    monkeypatch.setattr(packing, "detect_safely", meanwhile)
    with pytest.raises(ApplianceError, match="can't be written"):
        await pack(paths, file, None)
    assert file.read_text() == "somebody else's"
    assert left_behind(tmp_path) == []


async def test_what_is_broken_is_said_and_the_rest_is_packed(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.make()
    paths.journal_file.write_bytes(b"no database " * 100)
    paths.config_file.write_text(f'[governor]\nhold = "{PROMPT}"\n')
    paths.daemon_file.write_text("{")

    async def broken(*_: Any) -> tuple[Finding, ...]:
        raise RuntimeError(PROMPT)

    monkeypatch.setattr(doctor, "examine", broken)
    packed = await pack(paths, tmp_path / "b.zip", None)
    missing = {one.name: one.why for one in packed.missing}
    assert sorted(missing) == ["doctor.json", "logs/daemon.log", "settings.toml", "timeline.jsonl"]
    assert missing["timeline.jsonl"] == "the journal tells nothing of the last 24 hours"
    assert "governor.hold" in missing["settings.toml"]
    assert missing["doctor.json"] == "the examination failed (RuntimeError)"
    members = opened(packed.file)
    assert "version.json" in members
    for name, why in missing.items():
        assert f"  {name}: {why}" in members["README.txt"]


async def test_a_bundle_has_a_size(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await scripted(paths, time.time())
    monkeypatch.setattr(parts, "MOST_ENTRIES", 10)
    monkeypatch.setattr(parts, "MOST_LOGS", 2)
    monkeypatch.setattr(parts, "MOST_LOG", 100)
    for number in range(5):
        (paths.logs / f"engine-{number}.log").write_text("load_tensors: offloaded 12/31 layers to GPU\n" * 9)
    packed = await pack(paths, tmp_path / "b.zip", None)
    members = opened(packed.file)
    rows = [json.loads(line) for line in members["timeline.jsonl"].splitlines()]
    assert len(rows) == 10
    assert rows == sorted(rows, key=lambda row: row["at"]), "the newest, in the order of time"
    assert rows[-1]["at"] == max(row["at"] for row in rows) > time.time() - 60
    assert len([name for name in members if name.startswith("logs/engine")]) == 2
    assert len(members["logs/engine-1.log"].splitlines()) <= 4


def test_the_filter_of_engine_lines_is_stricter_than_the_logs_own() -> None:
    """What the log's own filter lets through (a verbose server's words) stays here, too."""
    from appliance.operations.bundle.lines import of_engine

    line = f"0.01.000.001 D slot update_slots: prompt token 0: 1 '{PROMPT}'"
    assert RequestText().without(line) == line
    assert of_engine([line]) == ([], 1)
    assert (
        of_engine([f"load_tensors: {word}" for word in PROMPT.split() if word not in ("the", "of")])[0] == []
    )


def test_a_long_line_costs_no_time() -> None:
    from appliance.operations.bundle.lines import of_daemon, of_engine

    nasty = ["load_tensors: " + "1," * 8_000 + "x", "load_tensors: " + "(" * 8_000, "a: " * 6_000]
    started = time.process_time()
    of_engine(nasty)
    of_daemon([f"2026-11-30 22:26:08,123 INFO appliance.daemon: {line}" for line in nasty])
    assert time.process_time() - started < 1.0


def test_settings_that_a_bundle_holds_are_the_ones_in_force(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.make()
    monkeypatch.setenv("APPLIANCE_GOVERNOR__HOLD", "9s")
    made = parts.config(paths, parts.cleaner(paths))
    assert isinstance(made, parts.Member)
    assert 'hold = "9s"' in made.data.decode()
