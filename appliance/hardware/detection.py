"""What this machine has, put together from its parts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping

from appliance.hardware import amd, apple, cgroup, cores, host, nvidia, nvml
from appliance.hardware.sysfs import Roots
from appliance.hardware.types import Gpu, Machine, Trouble

log = logging.getLogger("appliance.hardware")

_NO_GPU = (
    "No GPU was found: no NVIDIA driver library, and no NVIDIA, AMD, Intel or Apple GPU on this machine."
)


def detect(*, roots: Roots = Roots(), wake: bool = False) -> Machine:  # noqa: B008  (frozen)
    """Look at this machine, in this process. Never raises; no GPU, driver or library is a note, not an error.

    A GPU that the kernel has powered down stays asleep, with unknown memory, unless `wake` (before a model is
    loaded, say). Use `detect_safely` in a process that must not hang or crash with a vendor's driver.
    """
    found = nvidia.detect(roots, wake=wake)
    return _machine(found.gpus, found.notes, roots, found.trouble)


async def detect_safely(
    timeout_s: float = 5.0, *, wake: bool = False, env: Mapping[str, str] | None = None
) -> Machine:
    """`detect` in a child process, so that a hanging or crashing driver can't take the caller down.

    When the child gives no answer, the machine comes without NVIDIA's details and with a note that says so.
    Another `env` than this process's own reaches the child as it is. The child imports nothing of the current
    folder.
    """
    argv = [sys.executable, "-P", "-m", "appliance.hardware", *(["--wake"] if wake else [])]
    try:
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=dict(env) if env is not None else None
        )
    except OSError as error:
        return await _without_driver(f"The GPU could not be looked at: {error.strerror}.", silent=False)
    try:
        async with asyncio.timeout(timeout_s):
            out, _ = await child.communicate()
    except TimeoutError:
        return await _without_driver(f"The GPU driver gave no answer within {timeout_s:g} s.")
    finally:
        await _end(child)
    machine = _parse(out)
    if machine is None:
        return await _without_driver(f"The look at the GPU ended with code {child.returncode}.")
    return machine


def _machine(
    gpus: tuple[Gpu, ...], notes: tuple[str, ...], roots: Roots, trouble: Trouble | None = None
) -> Machine:
    everything = (*gpus, *amd.with_holders(amd.detect(roots), roots), *apple.detect())
    limits = cgroup.read(roots)
    memory, cpus = host.ram(limits), cores.cores(limits, roots)
    return Machine(
        gpus=everything,
        ram_total=memory.total,
        ram_available=memory.available,
        cores_physical=cpus.physical,
        cores_logical=cpus.logical,
        battery=host.battery(),
        cpu_name=host.cpu_name(roots),
        notes=(*notes, *host.notes(limits), *(() if everything or notes else (_NO_GPU,))),
        cores_performance=cpus.performance,
        trouble=trouble,
    )


async def _without_driver(note: str, *, silent: bool = True) -> Machine:
    """Everything that can be read without a vendor's library. `silent`: since the driver said nothing."""
    roots = Roots()

    def look() -> Machine:
        gpus = nvidia.from_bus(roots)
        return _machine(gpus, (note,), roots, nvml.trouble("no_answer") if gpus and silent else None)

    return await asyncio.to_thread(look)


async def _end(child: Process) -> None:
    """Kill the child if it still runs; one that hangs inside the kernel is left behind, not waited for."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await child.wait()


def _parse(out: bytes) -> Machine | None:
    """The last line that is a document: vendor libraries may print lines of their own."""
    for line in reversed(out.splitlines()):
        if line.startswith(b"{"):
            try:
                return Machine.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                log.debug("the detection's answer can't be read: %s", error)
                return None
    return None
