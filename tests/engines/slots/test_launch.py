"""How engines are told where prompts are saved, and that their files are private from the start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.engines.adapters import Listen, command
from appliance.engines.arguments import arguments
from appliance.engines.children.xllamacpp_child import parameters
from appliance.engines.discovery import CHILDREN
from tests.engines.launches import build, launch

FOLDER = Path("/cache/prompts/ab")
KNOWN = frozenset({"--metrics", "--no-ui", "--cors-origins", "--no-warmup"})


def told(known: frozenset[str], **changes: Any) -> tuple[str, ...]:
    wanted = replace(launch(Path("m.gguf")), **changes)
    return arguments(wanted, "/run/e.sock", 0, known, fit=False, warmup=True)


def test_llama_server_gets_folder_and_bound() -> None:
    flags = told(KNOWN | {"--slot-save-path", "--cache-ram"}, slot_save_path=FOLDER, cache_ram_mib=0)
    assert flags[flags.index("--slot-save-path") + 1] == str(FOLDER)
    assert flags[flags.index("--cache-ram") + 1] == "0"


@pytest.mark.parametrize(
    ("known", "changes"),
    [(KNOWN, {"slot_save_path": FOLDER, "cache_ram_mib": 64}), (frozenset(), {})],
    ids=["a build that knows neither", "nothing asked"],
)
def test_nothing_is_said_where_it_is_not_known_or_not_wanted(
    known: frozenset[str], changes: dict[str, Any]
) -> None:
    assert not {"--slot-save-path", "--cache-ram"} & set(told(known, **changes))


async def test_xllamacpp_gets_a_folder_that_a_name_can_be_added_to() -> None:
    wanted = replace(launch(Path("m.gguf")), slot_save_path=FOLDER, cache_ram_mib=96)
    what = await command(build("xllamacpp"), wanted, Listen("/run/e.sock", 0), key="k", marker="m")
    params = parameters(json.loads(what.stdin or b""), "k")
    assert (params.slot_save_path, params.cache_ram_mib) == (f"{FOLDER}/", 96)


@pytest.mark.skipif(sys.platform == "win32", reason="no umask there")
def test_what_an_engine_writes_is_private_from_its_first_moment(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        subprocess.run(
            [sys.executable, str(CHILDREN / "launcher.py"), "--parent", str(os.getpid()), "--",
             "/bin/sh", "-c", f"mkdir {tmp_path}/folder; echo words > {tmp_path}/file"],
            check=True, timeout=60,
        )  # fmt: skip
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("folder", "file")]
    assert modes == [0o700, 0o600]
