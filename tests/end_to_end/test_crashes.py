"""What happens when a process dies, or a client leaves: nothing lost, nothing left, nothing faked."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from openai import APIError, OpenAI

from tests.end_to_end.appliance import MODEL, Home, Running, alive, until

LONG = "Write a very long story about a lighthouse keeper and the sea."


def client(up: Running) -> OpenAI:
    return OpenAI(base_url=up.url, api_key="local", max_retries=0, timeout=60)


def test_killing_the_daemon_leaves_no_engine_behind(home: Home) -> None:
    with home.up(MODEL, "--ctx", "1024", "--parallel", "1") as up:
        family = [process.pid for process in up.family()]
        engine = up.engine_pid()
        assert engine in family
        os.kill(up.pid, signal.SIGKILL)
        until(lambda: not any(alive(pid) for pid in family), 5.0, "every child gone")
    with home.up(MODEL, "--ctx", "1024", "--parallel", "1") as again:
        assert again.status()["engines"][0]["state"] == "ready"


def test_bytes_that_change_while_they_are_served_are_not_served_after_a_crash(home: Home) -> None:
    path = Path(home.run("models", "list", "--here", "--json").document["models"][0]["path"])
    good = path.read_bytes()
    path.unlink()  # other homes share these bytes
    path.write_bytes(good)
    with home.up(MODEL, "--ctx", "1024", "--parallel", "1") as up:
        with path.open("r+b") as file:
            file.seek(50_000_000)
            file.write(bytes(byte ^ 0xFF for byte in good[50_000_000:50_004_096]))
        os.kill(up.engine_pid(), signal.SIGKILL)
        failed = until(
            lambda: next((e for e in up.status()["engines"] if e["state"] == "failed"), None), 30, "failed"
        )
        assert "SHA-256" in f"{failed['error']} {failed['cause']}"
        with pytest.raises(APIError):
            client(up).chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
    rows = home.run("models", "list", "--here", "--json").document["models"]
    assert [row["state"] for row in rows] == ["damaged"]


def test_a_killed_engine_ends_the_running_stream_in_an_error_and_comes_back(home: Home) -> None:
    with home.up(MODEL, "--ctx", "2048", "--parallel", "1") as up:
        first_engine = up.engine_pid()
        stream = client(up).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": LONG}], max_tokens=1500, stream=True
        )
        pieces: list[str] = []
        finish: list[str] = []

        def read_until_it_breaks() -> None:
            for chunk in stream:
                choice = chunk.choices[0]
                pieces.append(choice.delta.content or "")
                finish.extend([choice.finish_reason] if choice.finish_reason else [])
                if len(pieces) == 10:
                    os.kill(first_engine, signal.SIGKILL)

        with pytest.raises(APIError) as caught:
            read_until_it_breaks()
        assert finish == [], "a broken reply never looks complete"
        assert "".join(pieces).strip()
        body = caught.value.body
        assert isinstance(body, dict)
        assert body["message"]
        reply = client(up).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=4
        )
        assert reply.choices[0].message.content is not None
        engine = up.status()["engines"][0]
        assert engine["restarts"] == 1
        assert engine["pid"] != first_engine


def test_the_raw_stream_of_a_killed_engine_has_no_done(home: Home) -> None:
    with home.up(MODEL, "--ctx", "2048", "--parallel", "1") as up:
        raw = b""
        with raw_request(up, stream=True, max_tokens=1500) as connection:
            while raw.count(b"data: ") < 10:
                raw += connection.recv(65536)
            os.kill(up.engine_pid(), signal.SIGKILL)
            while piece := connection.recv(65536):
                raw += piece
        assert b'"error"' in raw
        assert b"[DONE]" not in raw
        assert b'"finish_reason":"stop"' not in raw
        assert b'"finish_reason":"length"' not in raw


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_a_client_that_leaves_while_decoding_frees_its_slot_within_a_second(home: Home, stream: bool) -> None:
    with home.up(MODEL, "--ctx", "4096", "--parallel", "2") as up:
        with raw_request(up, stream=stream, max_tokens=3500) as connection:
            until(lambda: engine_slots(home, up).count(True) == 1, 20, "one slot works")
            if stream:
                connection.recv(1)
        left = time.monotonic()
        time.sleep(1.0)  # the limit itself; /slots is asked once, since polling disturbs the engine
        busy = engine_slots(home, up)
        assert busy.count(True) == 0, f"{busy} {time.monotonic() - left:.2f} s after the client left"
        row = until(lambda: next(iter(recent(up, 499)), None), 5, "the journal row")
        assert row["reason"] == "local.ok"


def test_a_client_that_leaves_in_prefill_frees_its_slot_by_the_end_of_the_batch(home: Home) -> None:
    """The engine's own log tells at which token it stopped: within the first batch of 2,048, not after all.

    /slots is asked once, after that, since polling it disturbs the cancel.
    """
    prompt = "The quick brown fox jumps over the lazy dog. " * 330
    with home.up(MODEL, "--ctx", "8192", "--parallel", "1") as up:

        def log_of_prompt() -> str | None:
            found = home.run("logs", "-n", "60").out.rpartition("task.n_tokens = 33")
            return found[2] if found[1] else None

        with raw_request(up, stream=True, max_tokens=2000, prompt=prompt):
            until(log_of_prompt, 30, "the prefill has begun")
        until(lambda: up.status()["queue"]["running"] == 0, 5, "the lease is free at once")
        released = until(
            lambda: re.search(r"release: .* stop processing: n_tokens = (\d+)", log_of_prompt() or ""),
            90,
            "release",
        )
        assert int(released[1]) <= 2048
        assert engine_slots(home, up) == [False]
        row = until(lambda: next(iter(recent(up, 499)), None), 5, "the journal row")
        assert row["tokens_out"] is None


def test_a_queued_client_that_leaves_does_not_touch_the_one_that_runs(home: Home) -> None:
    with home.up(MODEL, "--ctx", "2048", "--parallel", "1") as up:
        done: list[str] = []

        def first() -> None:
            stream = client(up).chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": LONG}], max_tokens=120, stream=True
            )
            done.extend(
                c.choices[0].finish_reason for c in stream if c.choices and c.choices[0].finish_reason
            )

        thread = threading.Thread(target=first)
        thread.start()
        until(lambda: up.status()["queue"]["running"] == 1, 20, "the first runs")
        with raw_request(up, stream=True, max_tokens=5):
            until(lambda: up.status()["queue"]["waiting"] == 1, 20, "the second waits")
        until(lambda: up.status()["queue"]["waiting"] == 0, 5, "the second is gone")
        thread.join(60)
        assert done in (["length"], ["stop"])


class raw_request:  # noqa: N801 - used like a function
    """A chat request over a bare socket, closed when the block ends."""

    def __init__(self, up: Running, *, stream: bool, max_tokens: int, prompt: str = LONG) -> None:
        parts = urlsplit(up.url)
        body = json.dumps(
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": max_tokens,
                "stream": stream,
                "ignore_eos": True,
            }
        ).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60)
        self._socket.sendall(head.encode() + body)

    def __enter__(self) -> socket.socket:
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def recent(up: Running, status: int) -> list[dict[str, object]]:
    return [row for row in up.status()["requests"]["recent"] if row["status"] == status]


def engine_slots(home: Home, up: Running) -> list[bool]:
    """Which slots work, asked from the engine itself over its private socket with its own key."""
    import psutil

    sockets = list((home.root / "run").glob("engine-*.sock"))
    assert len(sockets) == 1
    environment = psutil.Process(up.engine_pid()).environ()
    key = environment.get("LLAMA_API_KEY", "")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(sockets[0]))
        request = (
            f"GET /slots HTTP/1.1\r\nHost: engine\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(request.encode())
        raw = b""
        while piece := connection.recv(65536):
            raw += piece
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0], head
    return [bool(slot["is_processing"]) for slot in json.loads(_dechunk(head, body))]


def _dechunk(head: bytes, body: bytes) -> bytes:
    if b"chunked" not in head.lower():
        return body
    plain = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            break
        plain, body = plain + body[:length], body[length + 2 :]
    return plain
