"""The product as its user runs it: the `appliance` command in its own processes, under a home of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import psutil

from appliance.cli.main import main
from appliance.client import Client
from appliance.paths import Paths

MODEL = "smollm2-135m-instruct"
READY_LIMIT_S = 90.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@dataclass(slots=True)
class Running:
    """An `appliance up` that is ready."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]
    home: Home
    err_file: Path

    @property
    def url(self) -> str:
        """With `/v1`."""
        return str(self.ready["url"])

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    @property
    def pid(self) -> int:
        return int(self.ready["pid"])

    def status(self) -> dict[str, Any]:
        return self.home.run("status", "--json").document

    def raw(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """One request to the control plane, or the gateway, as any HTTP client would send it."""
        token = json.loads((self.home.root / "state" / "daemon.json").read_text())["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data=data, headers=headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def engine_pid(self) -> int:
        return int(self.status()["engines"][0]["pid"])

    def family(self) -> list[psutil.Process]:
        """The daemon and everything it started."""
        daemon = psutil.Process(self.pid)
        return [daemon, *daemon.children(recursive=True)]

    def stop(self) -> int:
        """Ctrl-C and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@dataclass(slots=True)
class Home:
    """One user: all folders under one, and the environment of the commands."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("APPLIANCE_H", "NO_COLOR"))
        }
        return {**kept, "APPLIANCE_HOME": str(self.root), **self.env, **(extra or {})}

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdin: str = "", timeout_s: float = 120
    ) -> Done:
        """Run a command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "appliance.cli.main", *arguments],
            env=self.environment(env), input=stdin, capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def client(self) -> Client:
        """The door to this user's daemon."""
        return Client.connect(
            Paths(*(self.root / name for name in ("config", "data", "state", "cache", "run")))
        )

    def here(self, *arguments: str) -> Done:
        """The same command in this process, a second quicker: for what is not about a process of its own."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment(), clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main(list(arguments))
            except SystemExit as end:
                return Done(int(end.code or 0), out.getvalue(), err.getvalue())
        raise AssertionError("a command always ends the process")

    def spawn(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> tuple[subprocess.Popen[str], Path]:
        """Start a command; its stderr goes to a file."""
        err_file = self.root / f"stderr-{time.monotonic_ns()}.txt"
        self.root.mkdir(parents=True, exist_ok=True)
        with err_file.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "appliance.cli.main", *arguments],
                env=self.environment(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            )  # fmt: skip
        return process, err_file

    @contextmanager
    def up(self, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
        """`appliance up ... --json --port 0` until its ready line; stopped and checked at the end."""
        process, err_file = self.spawn("up", *arguments, "--json", "--port", "0", env=env)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, err_file.read_text()
            ready = json.loads(line)
            assert "url" in ready, ready
            yield Running(process, ready, self, err_file)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError("it did not stop within 15 s of Ctrl-C") from None
            finally:
                assert process.stdout is not None
                process.stdout.close()

    def catalog(self, text: str) -> None:
        """The user's own models.toml."""
        file = self.root / "config" / "models.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def until(look: Callable[[], T | None], limit_s: float, what: str) -> T:
    """Look again until something is found; fails with `what` after the limit. Bounded, so it never hangs."""
    deadline = time.monotonic() + limit_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not within {limit_s} s"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """The process runs and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
