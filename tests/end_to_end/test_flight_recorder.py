"""The flight recorder of a running appliance: what it kept is replayed, and packed without any prompt."""

from __future__ import annotations

import asyncio
import dataclasses
import zipfile
from pathlib import Path

from tests.end_to_end.appliance import Home
from tests.end_to_end.second_leg import KEY, ask, wait
from tests.end_to_end.test_heat import FAST, laptop

PROMPT = "the launch code of the blue whale"
REPLY = "gobbledygook"
CHATTY = dataclasses.replace(
    FAST,
    tokens=(REPLY, *FAST.tokens),
    load_lines=(*FAST.load_lines, f"srv  log_server_r: request: {PROMPT}", f"load_tensors: {PROMPT}"),
)
"""An engine that prints prompts."""


async def test_what_happened_can_be_asked_under_other_settings_and_packed(home: Home, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    async with laptop(home, tmp_path, CHATTY) as one:
        await wait(one.running, lambda s: s["gpus"] and s["gpus"][0]["temperature"] == 60)
        status, headers, _ = await ask(one.running, messages=messages)
        assert (status, headers["X-Appliance-Route"]) == (200, "local")
        one.set(temp=95, reasons=0x40)
        await wait(one.running, lambda s: s["thermal"] == "critical")
        status, headers, _ = await ask(one.running, messages=messages)
        assert headers["X-Appliance-Reason"] == "remote.thermal"
        await ask(one.running, messages=messages, model=PROMPT)
        bundle = tmp_path / "b.zip"
        packed = await asyncio.to_thread(home.run, "doctor", "--bundle", str(bundle), "--json")
        token = (home.root / "state" / "daemon.json").read_text().split('"token": "')[1].split('"')[0]
    assert packed.code == 0, packed.err
    with zipfile.ZipFile(bundle) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {"timeline.jsonl", "logs/daemon.log", "logs/engine-1.log", "settings.toml"} <= set(texts)
    for name, text in texts.items():
        for marker in (PROMPT, "blue whale", REPLY, KEY, token, str(Path.home())):
            assert marker not in text, f"{marker} in {name}"
    assert "load_tensors: offloaded 31/31 layers to GPU" in texts["logs/engine-1.log"]

    patient = tmp_path / "patient.toml"
    patient.write_text('[governor]\nhold = "10m"\n')
    now = home.here("replay", "--last", "10m", "--settings", str(patient), "--json").document
    assert [(d["before"], d["now"]) for d in now["decisions"]] == [
        ("local.ok", "local.ok"), ("remote.thermal", "local.ok")]  # fmt: skip
    assert now["differ"] == 1
    assert "critical" not in [change["after"] for change in now["changes"]]
    again = home.here("replay", str(bundle), "--settings", str(patient), "--json").document
    assert again["reasons"] == now["reasons"]
