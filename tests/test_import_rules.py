"""The direction of imports, held twice: by the contracts in pyproject.toml and by what is really loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def loaded_by(statement: str) -> set[str]:
    """The modules in `sys.modules` of a fresh process after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stdout))


def test_the_contracts_hold() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("statement", "never"),
    [
        ("import appliance.client", {"aiohttp", "pydantic", "rich", "click", "psutil", "textual", "asyncio"}),
        ("import appliance.cli.main", {"aiohttp", "pydantic", "rich", "textual", "appliance.client"}),
        ("import appliance.cli.lifecycle", {"aiohttp", "pydantic", "textual", "appliance.daemon"}),
        ("import appliance.daemon", {"textual", "rich", "tui", "huggingface_hub", "xllamacpp", "llama_cpp"}),
        ("import appliance.planning, appliance.routing", {"aiohttp", "textual", "rich", "psutil", "sqlite3"}),
    ],
)
def test_what_must_stay_out_is_not_loaded(statement: str, never: set[str]) -> None:
    assert not loaded_by(statement) & never
