"""What a request says never stays in the log; what the engine says about itself does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from appliance.engines import Engine, EngineKind, session
from appliance.engines.logs import FLOOD_LINES_PER_S, LogFile
from appliance.engines.request_text import LEFT_OUT, RequestText
from appliance.paths import Paths
from tests.engines.launches import build, launch, without_devices
from tests.engines.test_logs import pumped
from tests.engines.test_real_engines import written

CANARY = "SECRETCANARY"
RECORDED = Path(__file__).parent / "recorded"
SAID = [{"role": "user", "content": f"{CANARY} hello"}]
LONE = b'{"messages":[{"role":"user","content":"one %s\\ntwo %s \\ud83d"}]}' % ((CANARY.encode(),) * 2)


def with_schema(kind: str) -> dict[str, object]:
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": kind}}}
    return {"messages": SAID, "response_format": schema}


REFUSED: tuple[bytes, ...] = (
    LONE,
    f'{{"messages": "{CANARY}\n{CANARY}"'.encode(),
    *(
        json.dumps(body).encode()
        for body in (
            {"messages": SAID, "tools": f"SECRETTOOL {CANARY}"},
            {"messages": SAID, "tools": [{CANARY: CANARY}]},
            {"messages": [*SAID, {"role": "assistant", "tool_calls": [{"SECRETCALL": CANARY}]}]},
            with_schema(f"bro{CANARY}"),
            {"messages": SAID, "response_format": {"type": CANARY}},
            {"messages": SAID, "tool_choice": CANARY},
            {"messages": SAID, "reasoning_format": CANARY},
        )
    ),
)
BROKEN_GRAMMAR = json.dumps({"messages": SAID, "grammar": f'root ::= "{CANARY}\nfoo {CANARY} bar'}).encode()


@pytest.mark.parametrize(
    ("kind", "bodies"),
    [
        ("xllamacpp", (*REFUSED, BROKEN_GRAMMAR)),
        ("llama-server", (*REFUSED, BROKEN_GRAMMAR)),
        ("llama-cpp-python", REFUSED[:5]),
    ],
)
async def test_a_real_engine_that_refuses_a_request_leaves_none_of_it_in_the_log(
    kind: EngineKind, bodies: tuple[bytes, ...], smollm2_path: Path, paths: Paths
) -> None:
    with without_devices():
        engine = Engine(build(kind), launch(smollm2_path), paths=paths)
        await engine.start()
        endpoint = await engine.wait_ready()
        before = [line.line for line in engine.lines(limit=2_000)]
        async with session(endpoint) as client:
            for body in bodies:
                answer = await client.post(
                    "/v1/chat/completions", data=body, headers={"Content-Type": "application/json"}
                )
                assert answer.status in (400, 422, 500)
        log_file = engine.snapshot.log_file
        await engine.stop()
    ring = "\n".join(line.line for line in engine.lines(limit=2_000))
    assert log_file is not None
    for place in (ring, written(log_file)):
        assert "SECRET" not in place
        assert LEFT_OUT in place
    assert not any(LEFT_OUT in line for line in before)
    if kind != "llama-cpp-python":
        assert ring.count(LEFT_OUT) >= len(bodies)
        assert f"Failed to parse tools {LEFT_OUT}" in ring
        assert "json.exception.parse_error.101" in ring


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (
            '0.00.540.076 W srv    operator(): got exception: {"error":{"code":500,"message":'
            '"[json.exception.type_error.316] invalid UTF-8 byte: SECRET","type":"server_error"}}',
            "0.00.540.076 W srv    operator(): got exception: 500 server_error json.exception.type_error.316",
        ),
        (
            "0.00.540.076 E srv  params: failed to parse messages: no 'role': SECRET; messages = [SECRET]",
            "0.00.540.076 E srv  params: failed to parse messages",
        ),
        (
            '0.00.540.076 W srv  x: broken "SECRET"; tools = SECRET',
            "0.00.540.076 W srv  x: broken tools =",
        ),
        ("what():  Unexpected empty grammar stack after accepting piece: SECRET", "what():  Unexpected"),
        (
            "WARNING: JSON schema conversion was incomplete: pattern ^SECRET",
            "WARNING: JSON schema conversion",
        ),
    ],
)
def test_the_kind_of_error_stays(line: str, kept: str) -> None:
    assert RequestText().without(line) == f"{kept} {LEFT_OUT}"


def test_continuation_lines_go_and_known_ones_stay(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "engine.log")
    written = (
        b"0.00.100.000 I srv  update_slots: all slots are idle\n"
        b"parse: error parsing grammar: unexpected end of input at SECRET\n\nroot ::= SECRET\n"
        b"0.00.100.001 I srv  update_slots: all slots are idle\n"  # another thread, in between
        b"SECRET Unexpected SECRET\n"
        b"failed to parse grammar\n"
        b"top_k = 40, top_p = 0.950\n"
        b"0.00.100.002 E ggml_vulkan: Device memory allocation of size 4096 failed.\n"
        b"/src/ggml-cuda.cu:88: CUDA error\n"
        b"terminate called after throwing an instance of 'vk::DeviceLostError'\n"
    )
    ring, seen = pumped(written, file)
    expected = [
        "0.00.100.000 I srv  update_slots: all slots are idle",
        f"parse: error parsing grammar: {LEFT_OUT}",
        "0.00.100.001 I srv  update_slots: all slots are idle",
        "failed to parse grammar",
        "top_k = 40, top_p = 0.950",
        "0.00.100.002 E ggml_vulkan: Device memory allocation of size 4096 failed.",
        "/src/ggml-cuda.cu:88: CUDA error",
        "terminate called after throwing an instance of 'vk::DeviceLostError'",
    ]
    assert seen == [line.line for line in ring.lines()] == file.path.read_text().splitlines() == expected


def test_a_quotation_longer_than_a_line_may_be_leaves_nothing() -> None:
    ring, _ = pumped(b"0.00.100.000 W srv  x(): got exception: " + b"SECRET " * 50_000 + b"\nSECRET\n")
    assert "SECRET" not in " ".join(line.line for line in ring.lines())


def test_the_rest_of_a_flood_is_not_trusted() -> None:
    flood = b"noise\n" * (FLOOD_LINES_PER_S * 3)
    ring, _ = pumped(b"parse: error parsing grammar: x\n" + flood + b"root ::= SECRET\n")
    assert "SECRET" not in " ".join(line.line for line in ring.lines())


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.glob("*.log")))
def test_recorded_loads_pass_unchanged(name: str) -> None:
    lines = (RECORDED / name).read_text().splitlines()
    text = RequestText()
    assert [text.without(line) for line in lines] == lines


def test_load_failures_pass_unchanged() -> None:
    text = RequestText()
    for line in (
        'error while handling argument "-ngl": invalid argument',
        "ModuleNotFoundError: No module named 'xllamacpp'",
        "0.00.010.000 E llama_model_load: error loading model: data is not within the file bounds",
        "0.00.010.000 I srv    load_model: chat template: {% set messages = messages[1:] %} Unexpected x",
    ):
        assert text.without(line) == line


def test_a_conversation_id_of_the_caller_goes() -> None:
    line = "0.00.912.680 I srv  server_strea: conv_id=SECRET (empty=0)"
    assert RequestText().without(line) == f"0.00.912.680 I srv  server_strea: conv_id={LEFT_OUT} (empty=0)"
