"""The one door to NVML, NVIDIA's management library: every call goes through `query`.

NVML says "no" in many ways. Here each becomes one of three:

* a field that this device does not have (NotSupported, FunctionNotFound, ArgumentVersionMismatch,
  NoPermission on a device): `None`, remembered, so that it is asked once and not every second;
* the whole of NVML, or a device, can't be used: `NvmlDown` with a `Trouble` that names the state and one fix;
* anything else (a timeout, an argument it did not like): `None`, asked again the next time.

`pynvml` is imported with the first call, since most commands never need it. Sources: nvml.h (API 13),
pynvml.py of nvidia-ml-py 13.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from appliance.hardware.types import Trouble, TroubleState

log = logging.getLogger("appliance.hardware")

_ABSENT = frozenset({3, 13, 25})
_UNKNOWN = 999
_NO_PERMISSION = 4


_TROUBLES: dict[TroubleState, Trouble] = {
    trouble.state: trouble
    for trouble in (
        Trouble(
            "library_missing",
            "NVIDIA's management library (NVML) is not installed.",
            "Install the NVIDIA driver; in a container, start it with the GPU passed through.",
        ),
        Trouble(
            "driver_not_loaded",
            "The NVIDIA driver is not loaded.",
            "Load it with `modprobe nvidia`, or install the driver for this kernel.",
        ),
        Trouble(
            "version_mismatch",
            "The NVIDIA driver was updated, and the old one is still running.",
            "Restart the machine.",
        ),
        Trouble(
            "no_permission",
            "This user may not read the NVIDIA GPU.",
            "Give the user access to /dev/nvidia* (often the group `video` or `render`).",
        ),
        Trouble(
            "container",
            "This container has no access to the NVIDIA GPU any more.",
            "Restart the container; naming the devices at its start (`--device /dev/nvidia0`) keeps them.",
        ),
        Trouble(
            "no_answer",
            "The NVIDIA driver gives no answer.",
            "Restart the machine; if it comes back, look for `Xid` in the kernel log.",
        ),
        Trouble(
            "gpu_lost",
            "The NVIDIA GPU fell off the bus or needs a reset.",
            "Restart the machine; if it comes back, look for `Xid` in the kernel log.",
        ),
        Trouble(
            "unknown_error",
            "The NVIDIA driver answers with an unknown error.",
            "Restart the machine; if it comes back, reinstall the driver.",
        ),
    )
}
_STATE_OF_CODE: dict[int, TroubleState] = {
    4: "no_permission",
    9: "driver_not_loaded",
    12: "library_missing",
    15: "gpu_lost",
    16: "gpu_lost",
    18: "version_mismatch",
    999: "unknown_error",
}


def trouble(state: TroubleState) -> Trouble:
    """The message and the fix of a state."""
    return _TROUBLES[state]


class NvmlDown(Exception):
    """NVML, or the device that was asked, can't be used now. Stays inside this room and the sensor child."""

    def __init__(self, state: TroubleState) -> None:
        super().__init__(state)
        self.trouble = trouble(state)


_absent: set[tuple[object, ...]] = set()


def query(name: str, *args: object) -> Any:
    """Call `pynvml.<name>(*args)`: its value, or None where this device or driver has no such thing.

    Raises NvmlDown when NVML as a whole, or the device, can't be used.
    """
    key = (name, *map(_identity, args))
    if key in _absent:
        return None
    pynvml = _library()
    function = getattr(pynvml, name, None)
    if function is None:
        return None
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        return _refused(key, int(error.value), args)
    except pynvml.NVMLLibraryMismatchError:
        _absent.add(key)  # an old driver has no such version of the function
        return None
    except (ctypes.ArgumentError, ValueError, OverflowError) as error:
        log.debug("NVML %s gave a value that can't be read: %s", name, error)
        return None


def forget() -> None:
    """Ask again for everything that was absent: after a new initialisation all may be different."""
    _absent.clear()


@contextmanager
def session() -> Iterator[None]:
    """NVML initialised within the block. Raises NvmlDown when that fails."""
    start()
    try:
        yield
    finally:
        stop()


def start() -> None:
    """Initialise NVML (reference-counted). Raises NvmlDown."""
    forget()
    query("nvmlInitWithFlags", 0)


def stop() -> None:
    """Let go of NVML, so that a laptop's GPU may sleep again. Never raises."""
    try:
        query("nvmlShutdown")
    except NvmlDown as error:
        log.debug("NVML shutdown: %s", error.trouble.state)


def field(handle: object, field_id: int) -> int | None:
    """One entry of the field values, by its own return code and type."""
    key = ("field", _identity(handle), field_id)
    if key in _absent:
        return None
    values = query("nvmlDeviceGetFieldValues", handle, [field_id])
    if values is None:
        return None
    entry = values[0]
    if entry.nvmlReturn != 0:
        if entry.nvmlReturn in _ABSENT:
            _absent.add(key)
        return None
    name = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}.get(
        entry.valueType
    )
    return None if name is None else int(getattr(entry.value, name))


def _library() -> ModuleType:
    try:
        import pynvml
    except ImportError:
        raise NvmlDown("library_missing") from None
    module: ModuleType = pynvml
    return module


def _refused(key: tuple[object, ...], code: int, args: tuple[object, ...]) -> None:
    """A call ended with an error code: remember, raise, or let it pass as unknown for now."""
    device = args[0] if args and isinstance(args[0], ctypes._Pointer) else None
    if code in _ABSENT or (code == _NO_PERMISSION and device is not None):
        _absent.add(key)
        return
    if code == _UNKNOWN and device is not None and _still_answers(key[0], device):
        return  # WSL's memory call does this on a GPU that is otherwise well
    state = _STATE_OF_CODE.get(code)
    if state is not None:
        raise NvmlDown(state)
    log.debug("NVML %s: code %d", key[0], code)


def _still_answers(asked: object, device: object) -> bool:
    """The device still tells its UUID, so it was one field that failed and not the device."""
    if asked == "nvmlDeviceGetUUID":
        return False
    try:
        return query("nvmlDeviceGetUUID", device) is not None
    except NvmlDown:
        return False


def _identity(argument: object) -> object:
    """A hashable stand-in: a device handle by its address, anything else by its text."""
    if isinstance(argument, ctypes._Pointer):
        return ctypes.cast(argument, ctypes.c_void_p).value
    return str(argument)
