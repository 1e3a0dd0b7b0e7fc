"""Every command that prints data: text for people, one document with --json, the right exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.appliance import MODEL, Home, Running


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (("models", "list"), {"models"}),
        (("config", "show"), {"settings"}),
        (("config", "path"), {"path"}),
        (("config", "get", "server.port"), {"key", "value", "source"}),
        (("engines", "list"), {"engines", "chosen", "error", "note"}),
        (("remote", "list"), {"remotes"}),
        (("env",), {"OPENAI_BASE_URL", "OPENAI_API_KEY", "NO_PROXY"}),
        (("plan", MODEL, "--ctx", "1024"), {"model", "arch", "devices", "host", "fits", "reasons", "flags"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_same_document_with_and_without_a_daemon(
    home: Home, running: Running, arguments: tuple[str, ...], keys: set[str]
) -> None:
    alone = home.run(*arguments, "--json")
    through = running.home.run(*arguments, "--json")
    assert (alone.code, through.code) == (0, 0), alone.err + through.err
    assert keys <= set(alone.document)
    assert set(through.document) == set(alone.document)
    assert home.run(*arguments).out.strip()


def test_doctor_names_the_engine_and_exits_0_on_a_healthy_machine(home: Home) -> None:
    done = home.run("doctor", "--json", env={"APPLIANCE_SERVER__PORT": "0"})
    checks = {finding["check"]: finding for finding in done.document["findings"]}
    assert checks["engine"]["level"] == "ok"
    assert "xllamacpp" in checks["engine"]["detail"]
    assert done.code == (0 if done.document["healthy"] else 1)
    assert "running on CPU" in checks["gpu"]["detail"]


def test_doctor_exits_1_for_a_key_that_is_not_set(home: Home) -> None:
    home.run("remote", "add", "lab", "http://127.0.0.1:9/v1", "--api-key-env", "NOT_SET_HERE")
    done = home.run("doctor")
    assert done.code == 1
    assert "NOT_SET_HERE is not set" in done.out
    assert "export NOT_SET_HERE" in done.out


def test_plan_says_why_line_by_line_and_round_trips_its_wishes(home: Home) -> None:
    document = home.run("plan", MODEL, "--ctx", "2048", "--parallel", "3", "--kv", "q8_0", "--json").document
    assert (document["ctx"], document["parallel"], document["kv_type"]) == (2048, 3, "q8_0")
    assert document["flags"][document["flags"].index("-c") + 1] == str(2048 * 3)
    host = document["host"]
    taken = host["model"] + host["kv"] + host["compute"] + host["overhead"] + host["reserve"]
    assert host["spare"] == host["free"] - taken
    assert document["measured"] is True
    text = home.run("plan", MODEL, "--ctx", "2048").out
    assert "measured by the engine" in text
    assert "RAM" in text


def test_plan_takes_a_file_that_is_in_no_catalog(home: Home, smollm2_path: Path) -> None:
    document = home.run("plan", str(smollm2_path), "--json").document
    assert (document["arch"], document["n_layer"]) == ("llama", 30)


def test_a_setting_changed_while_the_daemon_runs_acts_at_once(home: Home) -> None:
    with home.up(MODEL, "--ctx", "1024", "--parallel", "1") as up:
        done = home.run("config", "set", "routing.policy", "local-only", "--json")
        assert (done.code, done.document["value"]) == (0, "local-only")
        assert up.status()["routing"]["policy"] == "local-only"
        removed = home.run("models", "rm", MODEL)
        assert removed.code == 1
        assert "is loaded now" in removed.err
    done = home.run("models", "rm", MODEL, "--json")
    assert done.code == 0
    assert done.document["freed"] < 100_000, "its notes; another link still holds the bytes of the model"
    assert home.run("models", "list", "--here", "--json").document["models"] == []
    assert home.run("models", "rm", MODEL).code == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nonsense",), 2),
        (("up", MODEL, "--gpu-layers", "some"), 2),
        (("plan",), 2),
        (("down",), 3),
        (("logs",), 3),
        (("chat",), 3),
        (("status",), 3),
        (("models", "verify", MODEL + "x"), 4),
        (("config", "get", "no.key"), 2),
        (("remote", "test", "nowhere"), 2),
        (("config", "set", "server.port", "99999"), 2),
        ((), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_exit_codes(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    done = Home(tmp_path).run(*arguments)
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    assert done.err.strip()


def test_a_model_marked_for_embeddings_answers_them(home: Home) -> None:
    packaged = Path(__file__).parent.parent.parent / "models.toml"
    entry = (
        packaged.read_text(encoding="utf-8").split("[models.smollm2-135m-instruct]")[1].split("\n[models.")[0]
    )
    marked = entry.replace('use = ["chat"]', 'use = ["chat", "embedding"]')
    assert marked != entry
    home.catalog("schema = 1\n[models.smollm2-135m-instruct]" + marked)
    from openai import OpenAI

    with home.up(MODEL, "--ctx", "1024", "--parallel", "1") as up:
        client = OpenAI(base_url=up.url, api_key="local", max_retries=0)
        raw = client.embeddings.with_raw_response.create(
            model=MODEL, input=["a cat", "a dog"], encoding_format="float"
        )
        vectors = [entry.embedding for entry in raw.parse().data]
        assert [len(vector) for vector in vectors] == [576, 576]
        assert vectors[0] != vectors[1]
        assert raw.headers["x-appliance-route"] == "local"
        assert json.loads(raw.text)["appliance"]["reason"] == "local.ok"
        chat = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=2
        )
        assert chat.choices


def test_outputs_that_are_closed_or_full_end_in_no_traceback(tmp_path: Path) -> None:
    home = Home(tmp_path)

    def shell(text: str) -> subprocess.CompletedProcess[str]:
        command = f"{sys.executable} -m appliance.cli.main {text}"
        return subprocess.run(
            ["sh", "-c", command], env=home.environment(), capture_output=True, text=True, check=False
        )

    full = shell("models list > /dev/full")
    assert (full.returncode, full.stderr) == (1, "✖ The output can't be written: No space left on device\n")
    assert shell("models list | head -1").stderr == ""
    closed = shell("config get server.port >&-")
    assert (closed.returncode, closed.stderr) == (0, "")
