"""`make demo`: the main job once, as a user would do it, with the real `openai` client.

Starts `appliance up smollm2-135m-instruct`, asks one question, prints the plan, the answer, the speed and the
`appliance` object, stops everything, and checks that no process is left. Exits 0 only when all that is true.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import Any

import psutil

from appliance.cli.plan_text import render
from appliance.units import duration

MODEL = "smollm2-135m-instruct"
QUESTION = "In one sentence: why is the sky blue?"
MAX_TOKENS = 80
STOP_LIMIT_S = 30.0


def main() -> int:
    """Run the demo. Returns the exit code."""
    began = time.monotonic()
    family: list[psutil.Process] = []
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "appliance.cli.main", "up", MODEL, "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        ready = json.loads(line) if line else {}
        if "url" not in ready:
            return child.wait() or 1
        _title(f"Ready after {duration(time.monotonic() - began)}: {ready['url']}")
        render(ready["plan"])
        _ask(ready["url"])
        family = _family(child.pid)
    finally:
        code = _stop(child)
    left = [process for process in family if _runs(process)]
    _title(f"Stopped: exit code {code}, {len(left)} of {len(family)} processes left")
    return 0 if code == 0 and not left else 1


def _ask(url: str) -> None:
    """One streamed question through the official client."""
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key="local", max_retries=0)
    _title(f"Question: {QUESTION}")
    asked = time.monotonic()
    first: float | None = None
    usage: Any = None
    served: dict[str, Any] = {}
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=MAX_TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        served = (chunk.model_extra or {}).get("appliance") or served
        usage = chunk.usage or usage
        piece = chunk.choices[0].delta.content if chunk.choices else None
        if piece:
            first = first if first is not None else time.monotonic()
            print(piece, end="", flush=True)
    ended = time.monotonic()
    print()
    if first is None or usage is None or not served:
        raise SystemExit("The reply was not complete.")
    _title("Measured")
    speed = (usage.completion_tokens - 1) / (ended - first) if ended > first else 0.0
    print(f"time to first token  {duration(first - asked)}")
    print(
        f"tokens/s             {speed:.1f}  ({usage.completion_tokens} tokens, prompt {usage.prompt_tokens})"
    )
    print(f"appliance            {json.dumps(served)}")


def _family(pid: int) -> list[psutil.Process]:
    """The daemon and everything it started."""
    daemon = psutil.Process(pid)
    return [daemon, *daemon.children(recursive=True)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _stop(child: subprocess.Popen[str]) -> int:
    """Ctrl-C, as a user would; then whatever it takes."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    try:
        return child.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _title(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
