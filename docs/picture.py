"""Draws docs/dashboard.svg: the dashboard of a real appliance that has just answered a few requests.

make picture
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from openai import OpenAI

from tui.picture import export_svg

MODEL = "smollm2-135m-instruct"
QUESTIONS = ("Name three colours.", "What is a lighthouse?", "Why is the sky blue?", "Count to ten.")


def main() -> None:
    """Start an appliance of its own home, ask, draw, stop."""
    target = Path(__file__).with_name("dashboard.svg")
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "APPLIANCE_HOME": home}
        command = [sys.executable, "-m", "appliance.cli.main"]
        up = subprocess.Popen([*command, "up", MODEL, "--json"], env=env, stdout=subprocess.PIPE, text=True)
        try:
            assert up.stdout is not None
            url = json.loads(up.stdout.readline())["url"]
            client = OpenAI(base_url=url, api_key="local")
            for question in QUESTIONS:
                client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": question}], max_tokens=48
                )
            done = subprocess.run([*command, "status", "--json"], env=env, capture_output=True, check=True)
            document: dict[str, Any] = json.loads(done.stdout)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(30)
    export_svg(document, target, now=time.time())
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
