"""A new build loads a tiny model and yields one token, started in the same way as it will serve."""

from __future__ import annotations

import time
from dataclasses import replace

from appliance.engines.builds import testmodel
from appliance.engines.builds.records import Tested
from appliance.engines.limits import Limits
from appliance.engines.stubs import scratch
from appliance.engines.supervisor import Engine
from appliance.engines.values import Build, Launch
from appliance.errors import ApplianceError
from appliance.paths import Paths
from appliance.planning import HOST, DeviceMemory, MemoryPlan, Plan
from appliance.text import clean_line

_LIMITS = Limits(stall_s=60.0, load_s=240.0, probe_s=120.0, restarts=0)
"""The first start of a GPU build compiles kernels or shaders; that is work, which counts as progress."""
_ALL_LAYERS = testmodel.N_LAYER + 1
_CTX = 128
_WHY_LINES = 2


async def try_build(build: Build, paths: Paths, *, device: DeviceMemory | None = None) -> Tested:
    """Load the test model with `build` and ask for one token; a failure is a result, too.

    On `device`, else on the first real GPU that it sees, else on the CPU.
    """
    where = device or next((one for one in build.devices if not one.software), None)
    began, name = time.monotonic(), (where.description if where is not None else "CPU")[:200]
    try:
        with scratch(paths) as folder:
            model = testmodel.write(folder / f"{testmodel.MODEL_ID}.gguf")
            await _load(build, Launch(testmodel.MODEL_ID, model, _plan(build, where)), paths)
    except ApplianceError as error:
        return Tested(ok=False, at=time.time(), device=name, why=_why(error))
    except OSError as error:
        return Tested(ok=False, at=time.time(), device=name, why=f"{paths.cache}: {error.strerror}")
    return Tested(ok=True, at=time.time(), device=name, seconds=round(time.monotonic() - began, 2))


async def _load(build: Build, launch: Launch, paths: Paths) -> None:
    """Raises EngineFailed."""
    engine = Engine(build, launch, paths=paths, limits=_LIMITS)
    try:
        await engine.start()
        await engine.wait_ready()
    finally:
        await engine.stop()


def _plan(build: Build, device: DeviceMemory | None) -> Plan:
    """Everything on the device, or nothing on any."""
    layers = _ALL_LAYERS if device is not None else 0
    flags = ("-ngl", str(layers), "-c", str(_CTX), "-np", "1", "-fit", "off", "-ctk", "f16", "-ctv", "f16",
             "-ub", "64", "-dev", device.name if device is not None else "none")  # fmt: skip
    place = MemoryPlan(HOST, None, None, 0, 0, 0, 0, 0, None)
    return Plan(
        model=testmodel.MODEL_ID, arch="llama", engine_build=build.build, n_layer=testmodel.N_LAYER,
        gpu_layers=layers, ctx=_CTX, parallel=1, kv_type="f16", flash_attn="auto", n_ubatch=64, threads=None,
        devices=(replace(place, name=device.name),) if device is not None else (), host=place, fits=True,
        measured=False, reasons=(), flags=flags,
    )  # fmt: skip


def _why(error: ApplianceError) -> str:
    """The cause, and the end of the log: what is missing stands there."""
    lines: tuple[str, ...] = getattr(error, "lines", ())
    said = [error.cause or error.message, *lines[-_WHY_LINES:]]
    return clean_line(" ".join(part for part in said if part), 900)
