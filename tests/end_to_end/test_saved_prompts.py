"""Nothing is worked on twice: a conversation after A-B-A, and after a restart of the daemon."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.appliance import MODEL, Home, Running

GEMMA = "gemma-3-270m:Q4_K_M"
SMALL = {"APPLIANCE_MODELS__MEMORY": "560MiB", "APPLIANCE_ENGINE__CTX": "1024"}
"""With 2 slots of 1,024 tokens one model fits at a time."""
STORY = " ".join(f"The {n}th traveller came by ship and told a story about a bridge." for n in range(24))
SECRET = " ".join(f"Patient {n} of ward seven has a fever and must not be named." for n in range(24))
pytestmark = pytest.mark.timeout(900)


def ask(up: Running, model: str, prompt: str, *, no_store: bool = False) -> tuple[int, int, str]:
    """Tokens of the prompt, how many of them were there already, and the reply."""
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json"} | ({"Cache-Control": "no-store"} if no_store else {})
    request = urllib.request.Request(f"{up.url}/completions", data=body, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=600) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    usage = found["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return int(usage["prompt_tokens"]), int(cached), str(found["choices"][0]["text"])


def files(home: Home) -> list[Path]:
    return list((home.root / "cache" / "prompts").rglob("*.slot"))


@pytest.mark.slow
def test_a_conversation_goes_on_after_another_model_and_after_a_restart(
    home: Home, gemma3_path: Path
) -> None:
    assert home.run("models", "import", str(gemma3_path)).code == 0
    home.env |= SMALL
    with home.up(MODEL, "--parallel", "2") as up:
        tokens, cached, reply = ask(up, MODEL, STORY)
        assert tokens >= 300
        assert cached <= 4
        ask(up, GEMMA, "The capital of France is")
        assert len(files(home)) == 1
        tokens, cached, _ = ask(up, MODEL, STORY + reply + " And then")
        assert cached >= tokens - 16
        assert up.status()["saved_prompts"]["files"] == 1
    with home.up(MODEL, "--parallel", "2") as up:
        tokens, cached, _ = ask(up, MODEL, STORY + reply + " And then they")
        assert cached >= tokens - 16


def test_what_may_not_be_stored_is_not_and_what_is_stored_can_be_removed(home: Home) -> None:
    home.env |= {"APPLIANCE_ENGINE__CTX": "1024"}
    with home.up(MODEL, "--parallel", "2") as up:
        ask(up, MODEL, SECRET, no_store=True)
        ask(up, MODEL, STORY)
    assert len(files(home)) == 1
    with home.up(MODEL, "--parallel", "2") as up:
        assert ask(up, MODEL, SECRET, no_store=True)[1] <= 4
        tokens, cached, _ = ask(up, MODEL, STORY + " And")
        assert cached >= tokens - 16
        gone = home.run("models", "prune", "--private", "--json")
        assert (gone.code, gone.document["by_kind"].keys()) == (0, {"prompt"})
        assert files(home) == []
    assert files(home) == [], "nor is what the engine held then"
