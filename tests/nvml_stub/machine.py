"""A machine with the fake NVML: one state file, and child processes that see the stub as their driver."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests import nvml_stub


@dataclass(frozen=True)
class FakeMachine:
    """The library is process-global, so everything that reads it runs in a child with `env`."""

    env: dict[str, str]
    state: Path

    def set(self, **values: int | str) -> None:
        """Replace the state of the GPU."""
        nvml_stub.write_state(self.state, **values)

    def lose_gpu(self) -> None:
        """Every call answers "GPU is lost"."""
        self.set(**nvml_stub.failing(15))

    def without(self, *symbols: str) -> FakeMachine:
        """The same machine with a driver that lacks these functions."""
        library = nvml_stub.build(self.state.parent, symbols)
        return replace(self, env={**self.env, "LD_LIBRARY_PATH": str(library.parent)})

    def logging(self) -> FakeMachine:
        """The same machine, whose calls are noted for `calls`."""
        return replace(self, env={**self.env, "FAKE_NVML_LOG": str(self.log)})

    @property
    def log(self) -> Path:
        return self.state.with_name("nvml-calls")

    def calls(self) -> list[str]:
        """Each call so far, with its device: `nvmlDeviceGetTemperatureV 0`."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def count(self) -> Counter[str]:
        """How often each function was called."""
        return Counter(call.split()[0] for call in self.calls())

    def json(self, code: str) -> Any:
        """What `code` leaves in `result`, run in a child with the stub."""
        program = f"import json\nresult = None\n{code}\nprint(json.dumps(result))"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def fake_machine(library: Path, folder: Path) -> FakeMachine:
    """A machine with one healthy laptop GPU."""
    state = folder / "nvml-state"
    nvml_stub.write_state(state)
    return FakeMachine(nvml_stub.environment(library, state), state)
