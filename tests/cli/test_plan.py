"""`appliance plan`: what a person reads, what a script reads, and the exit codes."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import output, plan_text
from appliance.cli import plan as plan_command
from tests.cli.indoors import Indoors
from tests.operations.families import KIN, LARGE, SMALL, unseen
from tests.planning.model_files import MODELS
from tests.web.server import Request, Server, head

LAPTOP = ("--gpu", "8GiB,RTX 4060 Laptop", "--ram", "16GiB")


@pytest.fixture
def home(tmp_path: Path) -> Indoors:
    return Indoors(tmp_path / "home", {"COLUMNS": "80"})


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(MODELS["qwen3-8b"].write(tmp_path / "qwen3-8b.gguf"))


def family(home: Indoors, folder: Path, *entries: Any) -> None:
    folder.mkdir()
    home.catalog("schema = 1\n" + "".join(entry.write(folder) for entry in entries))


def place(
    name: str = "CUDA0", how: str = "measured", overhead_how: str = "learned", **mib: Any
) -> dict[str, Any]:
    """One row of the memory table, figures in MiB."""
    sizes = {
        "model": 0,
        "kv": 0,
        "compute": 0,
        "overhead": 0,
        "reserve": 512,
        "free": 8_000,
        "spare": 10,
        **mib,
    }
    figures = {key: None if value is None else value << 20 for key, value in sizes.items()}
    return {"name": name, "how": how, "overhead_how": overhead_how, **figures}


def document(**further: Any) -> dict[str, Any]:
    return {
        "model": "m:Q4_K_M", "arch": "qwen3", "engine_build": "llama-server b10434", "n_layer": 36,
        "gpu_layers": 37, "ctx": 8_192, "parallel": 2, "kv_type": "f16", "n_ubatch": 2_048,
        "devices": [place()],
        "host": place(name="Host"), "fits": True, "measured": True, "reasons": [], "flags": [], "speed": None,
        "machine": "here", **further,
    }  # fmt: skip


def test_flags_of_the_text_are_those_of_the_document(home: Indoors, model: str) -> None:
    text, found = home.run("plan", model, *LAPTOP), home.run("plan", model, *LAPTOP, "--json").document
    assert text.code == 0
    assert "  " + " ".join(found["flags"]) in text.out.splitlines()
    assert found["flags"][found["flags"].index("-fit") + 1] == "off"


def test_all_options_reach_the_plan(home: Indoors, model: str, tmp_path: Path) -> None:
    MODELS["qwen3-0.6b"].write(tmp_path / "small.gguf")
    numbers = ("--ctx", "4096", "--parallel", "3", "--gpu-layers", "20", "--ubatch", "256")
    words = ("--kv", "q8_0", "--split", "row", "--profile", "batch")
    gpus = ("--gpu", "12GiB,RTX 3060", "--gpu", "12GiB,RTX 3060", "--ram", "32GiB")
    draft = ("--draft", str(tmp_path / "small.gguf"))
    found = home.run("plan", model, *numbers, *words, *gpus, *draft, "--json").document
    asked = (found["ctx"], found["parallel"], found["kv_type"], found["gpu_layers"], found["n_ubatch"])
    assert asked == (4_096, 3, "q8_0", 20, 256)
    assert found["split"] == "row"
    assert found["draft"] is not None


def test_what_does_not_fit_prints_the_plan_and_exits_5(home: Indoors, model: str) -> None:
    done = home.run("plan", model, "--ram", "4GiB")
    assert (done.code, done.err) == (5, "")
    assert "DOES NOT FIT" in done.out
    assert "does not fit: RAM would need" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nonsuch",), 4, "no model 'nonsuch'"),
        (("./nofile.gguf",), 2, "There is no file"),
        (("hf:nobody/nothing",), 2, "names no .gguf file"),
        (("hf:bad",), 2, "names no repository"),
        (("smollm2-135m-instruct", "--gpu", "8GiB"), 4, "it would fit on the GPU"),
        (("x", "--gpu", "banana"), 2, "not a size"),
        (("x", "--kv", "q3"), 2, "q3"),
        (("x", "--ubatch", "0"), 2, "ubatch"),
        (("/dev",), 2, "is a folder"),
        (("README.md",), 4, "This is not a GGUF file"),
    ],
)
def test_an_error_says_what_to_do(home: Indoors, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = home.run("plan", *arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "x", "--gpu-layers", "foo"),
        ("plan", "x", "--kv", "q3"),
        ("plan",),
        ("plan", "x", "--nonsuch"),
        ("models", "list", "--nonsuch"),
        ("nonsuch",),
    ],
)
def test_words_that_are_not_understood_are_an_error_document_too(
    home: Indoors, arguments: tuple[str, ...]
) -> None:
    done = home.run(*arguments, "--json")
    assert done.code == 2
    assert "Usage: " in done.err
    error = done.document["error"]
    assert error["code"] == "usage"
    assert error["message"]
    assert "--help" in error["hint"]


@pytest.mark.parametrize(
    "options",
    [
        ("--gpu", "8GiB"),
        ("--gpu", "8GiB", "--what-if"),
        LAPTOP,
        ("--gpu", "3GiB,RTX 3060", "--gpu", "24GiB,RTX 4090", "--ram", "16GiB"),
        ("--ram", "4GiB"),
    ],
)
def test_no_line_is_wider_than_the_terminal_but_the_flags_and_they_are_one_line(
    home: Indoors, tmp_path: Path, options: tuple[str, ...]
) -> None:
    model = MODELS["qwen3-8b"].write(tmp_path / "a-model-with-a-long-name-as-they-have-it-Q4_K_M.gguf")
    lines = home.run("plan", str(model), *options, env={"COLUMNS": "80"}).out.splitlines()
    flags = lines.index("Flags for llama-server") + 1 if "Flags for llama-server" in lines else None
    assert [line for at, line in enumerate(lines) if len(line) > 80 and at != flags] == []


def test_a_long_name_and_build_are_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    plan_text.render(document(model="m" * 60, engine_build="llama-server b10434 (a build with a name)"))
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 120


@pytest.mark.parametrize("split", ["row", "tensor"])
def test_a_split_without_a_second_gpu_changes_nothing_and_says_so(
    home: Indoors, model: str, split: str
) -> None:
    one = ("plan", model, "--gpu", "24GiB,RTX 4090", "--ram", "32GiB", "--ctx", "4096", "--split", split)
    assert f"--split {split} changes nothing: GPU0 has all" in " ".join(home.run(*one).out.split())
    two = (*one, "--gpu", "24GiB,RTX 4090", "--gpu-layers", "99")
    assert "changes nothing" not in home.run(*two).out


def test_an_engine_s_refusal_is_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"code": "refused", "text": "llama-server b10434 refuses it: unknown model architecture: 'x'"}
    plan_text.render(document(fits=False, reasons=[told]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("THE ENGINE REFUSES IT")
    assert lines[-2:] == ["Verdict", f"  - {told['text']}"]


def test_a_server_that_is_silent_is_named_while_it_is_waited_for(
    home: Indoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers once the person was told."""
    told = threading.Event()

    def answer(_: Request, connection: socket.socket) -> None:
        told.wait(20)
        connection.sendall(head("404 Not Found"))

    def remark(text: str) -> None:
        output.remark(text)
        told.set()

    monkeypatch.setattr(plan_command, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(plan_command, "remark", remark)
    with Server(answer) as server:
        done = home.run("plan", f"{server.url}/slow/a.gguf", "--gpu", "8GiB")
    assert "Waiting for 127.0.0.1" in done.err
    assert told.is_set()


def test_a_family_is_a_ranking_with_the_best_member_s_plan(home: Indoors, tmp_path: Path) -> None:
    family(home, tmp_path / "m", *KIN)
    done = home.run("plan", "kin", "--gpu", "8GiB,RTX 4060 Laptop", "--ram", "32GiB")
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()[2:7]]
    assert rows[0][:4] == ["1", "kin-8b:Q4_K_M", "4.68", "GiB"]
    assert "`appliance up kin` takes kin-8b:Q4_K_M." in done.out
    assert "kin-8b:Q4_K_M (qwen3), for the described machine" in done.out
    assert "experts in RAM" in done.out


def test_a_family_by_size_alone_says_how_to_get_more(home: Indoors, tmp_path: Path) -> None:
    family(home, tmp_path / "m", unseen(SMALL), unseen(LARGE))
    done = home.run("plan", "kin", *LAPTOP)
    assert done.code == 0
    assert "--fetch-headers" in done.out
    assert "~GPU" in done.out
    assert "Flags for llama-server" not in done.out


def test_a_card_without_a_name_is_told_how_to_get_a_speed(home: Indoors, model: str) -> None:
    assert "The speed needs" in home.run("plan", model, "--gpu", "8GiB").out
    assert "The speed needs" not in home.run("plan", model, *LAPTOP).out


def test_measured_figures_have_no_tilde_and_computed_ones_have(capsys: pytest.CaptureFixture[str]) -> None:
    measured = place(model=4_000, kv=700, compute=300, overhead=350)
    computed = place(name="Host", model=300, compute=20, overhead=128, how="computed", overhead_how="typical")
    plan_text.memory(document(devices=[measured], host=computed))
    gpu, ram = capsys.readouterr().out.splitlines()[1:3]
    assert gpu.split() == ["CUDA0", "4000", "700", "300", "350", "512", "8000", "10"]
    assert ram.split() == ["RAM", "~300", "0", "~20", "~128", "512", "8000", "~10"]


def test_what_is_unknown_is_not_zero(capsys: pytest.CaptureFixture[str]) -> None:
    plan_text.memory(document(devices=[], host=place(name="Host", free=None, spare=None)))
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["n/a", "n/a"]


@pytest.mark.parametrize(
    ("speed", "line"),
    [
        (None, None),
        (
            {"decode": 42.4, "decode_full": 31.2, "how": "table", "seen": None},
            "Speed of one request: ~42.4 tokens/s (~31.2 with a full context), by data sheet",
        ),
        (
            {
                "decode": 42.4,
                "decode_full": 31.2,
                "how": "table",
                "seen": {"cold": 39.0, "hot": None, "battery": 9.5},
            },
            "Speed of one request: ~42.4 tokens/s (~31.2 with a full context), by data sheet; "
            "seen here: 39 cold, 9.5 on battery",
        ),
        (
            {
                "decode": None,
                "decode_full": None,
                "how": None,
                "seen": {"cold": None, "hot": 28.0, "battery": None},
            },
            "Speed of one request: seen here: 28 hot",
        ),
    ],
)
def test_speeds_carry_a_tilde_until_they_were_seen(speed: dict[str, Any] | None, line: str | None) -> None:
    assert plan_text.speed_line(document(speed=speed)) == line


def test_foreign_text_can_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2Jgone"
    reason = {"code": "device_unused", "text": f"{evil} is not used"}
    plan_text.render(
        document(
            model=evil,
            arch=evil,
            engine_build=evil,
            devices=[place(name=evil)],
            reasons=[reason],
            flags=[evil],
        )
    )
    assert "\x1b" not in capsys.readouterr().out


def test_reasons_are_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    codes = ("layers", "kv_quantised", "spare", "speed", "would_fit", "of_another_kind")
    plan_text.reasons([{"code": code, "text": code.upper()} for code in codes])
    assert capsys.readouterr().out.splitlines() == [
        "Chosen", "  - LAYERS", "  - OF_ANOTHER_KIND",
        "What had to give", "  - KV_QUANTISED",
        "Verdict", "  - WOULD_FIT",
    ]  # fmt: skip


HEAVY = (
    "aiohttp", "appliance.daemon", "appliance.engines", "appliance.hub", "appliance.store",
    "appliance.catalog", "asyncio", "huggingface_hub", "psutil",
)  # fmt: skip
SAYS_WHAT_IT_LOADED = """
import sys
from appliance.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end.code
print([name for name in {names} if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("options", "names"),
    [(LAPTOP, HEAVY), (("--help",), (*HEAVY, "pydantic", "appliance.planning"))],
    ids=["a described machine", "help"],
)
def test_what_takes_no_machine_loads_nothing_that_looks_at_one(
    home: Indoors, model: str, options: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Its time is that of what it loads; a clock would say more of the machine that runs the test."""
    script = SAYS_WHAT_IT_LOADED.format(names=names)
    done = subprocess.run(
        [sys.executable, "-c", script, "plan", model, *options],
        env=home.environment({}), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
