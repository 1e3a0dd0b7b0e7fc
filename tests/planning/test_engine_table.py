"""Plans against the engine's own memory table of the same model (tests/data/engine_table.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.gguf import Header, read_header, shape_of
from appliance.planning import DeviceMemory, HostMemory, Load, Plan, PlanRequest, kv_bytes, make_plan
from appliance.planning.memory.compute import cpu_compute, output_bytes
from appliance.units import GIB, MIB
from tests.planning import truth

_TABLE: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "engine_table.json").read_text()
)["rows"]
_LLVMPIPE = DeviceMemory(
    "Vulkan0", "llvmpipe", "vulkan", 4 * GIB, 4 * GIB, software=True, max_tensor=128 * MIB
)
_HOST = HostMemory(32 * GIB, 24 * GIB)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Header:
    return read_header(smollm2_path)


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> Header:
    return read_header(gemma3_path)


def _plan(header: Header, row: dict[str, Any]) -> Plan:
    request = PlanRequest(
        ctx=row["ctx_total"] // row["slots"],
        parallel=row["slots"],
        gpu_layers=row["gpu_layers"],
        kv_type=row["kv"],
        embedding=row["embedding"],
    )
    return make_plan(header, [_LLVMPIPE], _HOST, request, model="m", engine_build="llama-server b10434")


_OFFLOADED = [row for row in _TABLE if row["gpu_layers"] > 0 and row["n_ubatch"] == 512]


@pytest.mark.parametrize("row", _OFFLOADED, ids=lambda r: f"ngl{r['gpu_layers']}-c{r['ctx_total']}-{r['kv']}")
def test_smollm2_model_kv_and_compute_on_the_device(smollm2: Header, row: dict[str, Any]) -> None:
    plan = _plan(smollm2, row)
    said, host_said = row["rows"]["Vulkan0"], row["rows"]["Host"]
    device = plan.devices[0]

    # the engine prints whole MiB, cut off
    assert said["model"] <= device.model / MIB < said["model"] + 1.2
    assert said["context"] <= device.kv / MIB < said["context"] + 1.2
    assert host_said["model"] <= plan.host.model / MIB < host_said["model"] + 1.2
    assert host_said["context"] <= plan.host.kv / MIB < host_said["context"] + 1.2
    assert said["compute"] <= device.compute / MIB < said["compute"] + 1.2


def test_gemma3_keeps_the_output_matrix_that_the_device_refuses_in_ram(gemma3: Header) -> None:
    """Logged: Vulkan0 model 65.16 MiB with all 19 layers, since its largest tensor is 128 MiB."""
    row = {"ctx_total": 16_384, "slots": 2, "gpu_layers": 19, "kv": "f16", "embedding": False}
    plan = _plan(gemma3, row)

    assert plan.devices[0].model / MIB == pytest.approx(65.16, abs=0.05)
    assert plan.host.model / MIB == pytest.approx(170.0, abs=0.1)


def test_gemma3_partial_offload_with_sliding_windows(gemma3: Header) -> None:
    """Logged with 10 layers, 16384 tokens, 2 slots: model 32.77, KV 46.00, compute 33.75 MiB."""
    row = {"ctx_total": 16_384, "slots": 2, "gpu_layers": 10, "kv": "f16", "embedding": False}
    device = _plan(gemma3, row).devices[0]

    assert device.model / MIB == pytest.approx(32.77, abs=0.05)
    assert device.kv / MIB == pytest.approx(46.0)
    assert device.compute / MIB == pytest.approx(33.75, rel=0.10)


def test_cpu_runs_of_both_models(smollm2: Header, gemma3: Header) -> None:
    """Logged with 8192 tokens, batches of 512: compute 21.51 and 33.77 MiB (the latter with full windows)."""
    load = Load(8_192, 1, 512, "f16", "f16", 1)
    full = Load(8_192, 1, 512, "f16", "f16", 1, swa_full=True)

    assert cpu_compute(shape_of(smollm2), load) / MIB == pytest.approx(21.51, rel=0.01)
    assert cpu_compute(shape_of(gemma3), full) / MIB == pytest.approx(33.77, rel=0.03)
    assert kv_bytes(shape_of(smollm2), load) == 180 * MIB


def test_a_published_measurement_of_a_stub() -> None:
    """A header in the shape of Qwen3 8B on the CPU, batches of 2048, 8192 tokens: 448.05 MiB."""
    row = next(r for r in truth.rows() if r["id"] == "s020")
    load = Load(8_192, 1, 2_048, "f16", "f16", 1)

    found = cpu_compute(truth.shape({**row, "n_ff": 12_288}), load)

    assert found / MIB == pytest.approx(448.05, rel=0.001)


@pytest.mark.parametrize(
    ("model", "ctx_total", "slots", "said"),
    [
        ("smollm2", 2_048, 1, (92, 45.0, 16.64)),
        ("smollm2", 32_768, 4, (92, 720.0, 22.64)),
        ("gemma3", 16_384, 2, (222 + 12, 78.0, 27.28)),  # host and repacked weights
        ("gemma3", 32_768, 4, (222 + 12, 156.0, 27.28)),
    ],
)
def test_plans_for_ram_against_xllamacpp(
    model: str, ctx_total: int, slots: int, said: tuple[int, float, float], request: pytest.FixtureRequest
) -> None:
    """What xllamacpp 2026.10.11549 logged on a CPU: weights in whole MiB, cache and compute buffers."""
    header = request.getfixturevalue(model)
    found = make_plan(
        header,
        [],
        _HOST,
        PlanRequest(ctx=ctx_total // slots, parallel=slots),
        model="m",
        engine_build="xllamacpp 2026.10.11549",
    )

    assert found.host.model / MIB == pytest.approx(said[0] + 0.5, abs=1.1)
    assert found.host.kv / MIB == pytest.approx(said[1])
    logits = output_bytes(shape_of(header), slots)  # the engine logs them apart
    # this build keeps one hidden state more than the recorded graph has
    assert (found.host.compute - logits) / MIB == pytest.approx(said[2], rel=0.08)
