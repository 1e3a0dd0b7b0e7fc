"""The one door to NVML, NVIDIA's management library: every call goes through `query`, or through `fields`.

NVML says "no" in many ways. Here each becomes one of three:

* a field that this device does not have (NotSupported, FunctionNotFound, ArgumentVersionMismatch,
  NoPermission on a device): `None`, remembered, so that it is asked once and not every second;
* the whole of NVML, or a device, can't be used: `NvmlDown` with a `Trouble` that names the state and one fix;
* anything else (a timeout, no data yet): `None`, asked again the next time.

A `Guard` hears of each call before and after, and may have it left out: the sensor child's watchdog is one.

`pynvml` is imported with the first call, since most commands never need it. Sources: nvml.h (API 13),
pynvml.py of nvidia-ml-py 13.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

from appliance.hardware import troubles
from appliance.hardware.troubles import ABSENT, NEEDED, trouble
from appliance.hardware.types import TroubleState

__all__ = [
    "Guard", "NvmlDown", "call_name", "fields", "forget", "guard_with", "label", "query", "refusal",
    "session", "start", "stop", "trouble",
]  # fmt: skip

log = logging.getLogger("appliance.hardware")

_TYPES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Where the union of a field value has its value, by `valueType`."""
_FIELDS = "nvmlDeviceGetFieldValues"


class NvmlDown(Exception):
    """NVML, or the device that was asked, can't be used now. Stays inside this room and the sensor child."""

    def __init__(self, state: TroubleState) -> None:
        super().__init__(state)
        self.trouble = trouble(state)


class Guard(Protocol):
    """Who hears of every call. `device` is what `label` said, or empty."""

    def allows(self, call: str, device: str) -> bool:
        """False: leave this one out."""

    def began(self, call: str, device: str) -> None:
        """It is about to be made."""

    def ended(self) -> None:
        """It came back."""


_absent: dict[tuple[object, ...], int] = {}
"""What a device refused for good, and by which code."""
_labels: dict[int | None, str] = {}
_guard: Guard | None = None


def guard_with(guard: Guard | None) -> None:
    """Have every call announced to `guard`."""
    global _guard
    _guard = guard


def label(handle: object, text: str) -> None:
    """What the device is called towards the guard: an address says nothing to the next process."""
    _labels[_address(handle)] = text


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
    call, device = call_name(name, args), _device(name, args)
    guard = _guard
    if guard is not None:
        if not guard.allows(call, device):
            if name in NEEDED:
                raise NvmlDown("no_answer")
            return None
        guard.began(call, device)
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        refused = int(error.value)
    except pynvml.NVMLLibraryMismatchError:  # an old driver has no such version of the function
        refused = 13
    except (ctypes.ArgumentError, ValueError, OverflowError) as error:
        log.debug("NVML %s gave a value that can't be read: %s", name, error)
        return None
    finally:
        if guard is not None:
            guard.ended()
    return _refused(key, refused, args)


def fields(handle: object, ids: Sequence[int]) -> dict[int, int]:
    """Entries of the field values in one call, each by its own return code and type; those that are known.

    Raises NvmlDown when an entry says that the device is lost.
    """
    wanted = [number for number in ids if (_FIELDS, _identity(handle), number) not in _absent]
    if not wanted:
        return {}
    found: dict[int, int] = {}
    for entry in query(_FIELDS, handle, wanted) or ():
        if entry.nvmlReturn != 0:
            _refused((_FIELDS, _identity(handle), int(entry.fieldId)), int(entry.nvmlReturn), (handle,))
        elif entry.valueType in _TYPES:
            found[int(entry.fieldId)] = int(getattr(entry.value, _TYPES[entry.valueType]))
    return found


def refusal(name: str, *args: object) -> int | None:
    """The code by which this was refused for good, as far as it was asked."""
    return _absent.get((name, *map(_identity, args)))


def call_name(name: str, args: tuple[object, ...] = ()) -> str:
    """The call as people know it: pynvml's one name for the memory stands for two functions."""
    return f"{name}_v2" if name == "nvmlDeviceGetMemoryInfo" and len(args) > 1 else name


def forget() -> None:
    """Ask again for everything that was absent: after a new initialisation all may be different."""
    _absent.clear()
    _labels.clear()


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


def _library() -> ModuleType:
    try:
        import pynvml
    except ImportError:
        raise NvmlDown("library_missing") from None
    module: ModuleType = pynvml
    return module


def _refused(key: tuple[object, ...], code: int, args: tuple[object, ...]) -> None:
    """A call ended with an error code: remember, raise, or let it pass as unknown for now."""
    call = str(key[0])
    if call in NEEDED:
        if code == troubles.ALREADY_INITIALISED:
            return
        raise NvmlDown(troubles.of_code(call, code) or "unknown_error")
    device = args[0] if args and isinstance(args[0], ctypes._Pointer) else None
    if code in ABSENT or (code == troubles.NO_PERMISSION and device is not None):
        _absent[key] = code
        return
    if device is not None and code in (troubles.UNKNOWN, troubles.INVALID_ARGUMENT):
        if not _still_answers(call, device):  # a handle that outlived its device is an invalid argument
            raise NvmlDown("gpu_lost" if code == troubles.INVALID_ARGUMENT else "unknown_error")
        if code == troubles.INVALID_ARGUMENT:
            _absent[key] = code  # a driver that does not know this kind of threshold, clock or field
        return  # 999: WSL's memory call does this on a GPU that is otherwise well
    state = troubles.of_code(call, code)
    if state is not None:
        raise NvmlDown(state)
    log.debug("NVML %s: code %d", call, code)


def _still_answers(asked: str, device: object) -> bool:
    """The device still answers for its UUID, so it was one field that failed and not the device."""
    if asked == "nvmlDeviceGetUUID":
        return False
    try:
        query("nvmlDeviceGetUUID", device)
    except NvmlDown:
        return False
    return True


def _device(call: str, args: tuple[object, ...]) -> str:
    """Which device a call is about: its label, or the index or bus address that it is asked for by."""
    first = args[0] if args else None
    if isinstance(first, ctypes._Pointer):
        return _labels.get(_address(first), "")
    if not call.startswith("nvmlDeviceGetHandleBy"):
        return ""
    return first.decode(errors="replace") if isinstance(first, bytes) else f"#{first}"


def _identity(argument: object) -> object:
    """A hashable stand-in: a device handle by its address, anything else by its text."""
    if isinstance(argument, ctypes._Pointer):
        return _address(argument)
    return str(argument)


def _address(handle: object) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value if isinstance(handle, ctypes._Pointer) else None
