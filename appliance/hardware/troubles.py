"""Why NVIDIA's driver, or one GPU, can't be used: each state one message and one fix, written for people.

What NVML's return codes mean depends on what was asked. On a call without which nothing works (`NEEDED`)
each code is a state. On one field of one device most codes are about that field alone: it is absent, or has
no value now. Source of the codes: nvml.h (API 13).
"""

from __future__ import annotations

from appliance.hardware.types import Trouble, TroubleState

NEEDED = frozenset(
    {
        "nvmlInitWithFlags",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetHandleByPciBusId",
    }
)
"""Without these there is no device to ask."""
ABSENT = frozenset({3, 13, 22, 24, 25, 26, 30})
"""NotSupported, FunctionNotFound, ArgumentVersionMismatch and their kind: this device has no such thing."""
INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, ALREADY_INITIALISED, UNKNOWN = 2, 3, 4, 5, 999

_RESTART = "Restart the machine; if it comes back, look for `Xid` in the kernel log."

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
            "not_supported",
            "The NVIDIA driver here does not offer what is needed to read the GPU.",
            "Update the driver; in a virtual machine or WSL, that of the host.",
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
            "no_gpu",
            "The NVIDIA driver runs and finds no GPU.",
            "Switch the GPU on (firmware or hybrid graphics settings); to a container, pass it through.",
        ),
        Trouble("no_answer", "The NVIDIA driver gives no answer.", _RESTART),
        Trouble("gpu_lost", "The NVIDIA GPU fell off the bus.", _RESTART),
        Trouble(
            "reset_required",
            "The NVIDIA GPU needs a reset before it can be used again.",
            "End the programs that use it and run `nvidia-smi --gpu-reset` as root, or restart the machine.",
        ),
        Trouble(
            "insufficient_power",
            "The NVIDIA GPU does not get enough power.",
            "Switch the machine off and check the GPU's power cables, or the dock's and laptop's charger.",
        ),
        Trouble(
            "irq_issue",
            "The kernel does not deliver the NVIDIA GPU's interrupts.",
            "Restart the machine; if it comes back, update its firmware (BIOS) and the kernel.",
        ),
        Trouble(
            "corrupted_inforom",
            "The NVIDIA GPU's own store of facts about itself (infoROM) is damaged.",
            "Restart the machine; if it comes back, have the GPU checked by its maker.",
        ),
        Trouble(
            "not_ready",
            "The NVIDIA driver is not ready yet.",
            "Wait a minute: it is asked again. If it stays so, restart the machine.",
        ),
        Trouble(
            "operating_system",
            "The operating system refuses the NVIDIA driver's calls.",
            "Look into the kernel log; a sandbox or container must let /dev/nvidia* through.",
        ),
        Trouble(
            "out_of_memory",
            "The NVIDIA driver lacks memory to work.",
            "Close other programs; it is asked again.",
        ),
        Trouble(
            "unknown_error",
            "The NVIDIA driver answers with an unknown error.",
            "Restart the machine; if it comes back, reinstall the driver.",
        ),
    )
}

_OF_NEEDED: dict[int, TroubleState] = {
    1: "not_ready", 3: "not_supported", 4: "no_permission", 6: "no_gpu", 8: "insufficient_power",
    9: "driver_not_loaded", 10: "no_answer", 11: "irq_issue", 12: "library_missing", 13: "not_supported",
    14: "corrupted_inforom", 15: "gpu_lost", 16: "reset_required", 17: "operating_system",
    18: "version_mismatch", 20: "out_of_memory", 23: "out_of_memory", 25: "not_supported",
    26: "not_supported", 27: "not_ready", 28: "no_gpu", 999: "unknown_error",
}  # fmt: skip
_OF_ANY: dict[int, TroubleState] = {
    1: "not_ready", 8: "insufficient_power", 9: "driver_not_loaded", 11: "irq_issue", 12: "library_missing",
    15: "gpu_lost", 16: "reset_required", 18: "version_mismatch", 28: "gpu_lost", 999: "unknown_error",
}  # fmt: skip
"""Codes that mean more than the one field that was asked."""

WHOLE: frozenset[TroubleState] = frozenset(
    {"library_missing", "driver_not_loaded", "version_mismatch", "not_ready", "operating_system"}
)
"""States of the driver; all others may be of one device, beside which others go on."""
BY_HAND: frozenset[TroubleState] = frozenset(
    {
        "library_missing", "driver_not_loaded", "version_mismatch", "not_supported", "no_permission",
        "container", "no_gpu", "insufficient_power", "corrupted_inforom",
    }
)  # fmt: skip
"""States that only a person ends: asked again once a minute."""


def trouble(state: TroubleState) -> Trouble:
    """The message and the fix of a state."""
    return _TROUBLES[state]


def of_code(call: str, code: int) -> TroubleState | None:
    """The state that a code means for this call; None: it is about one field only."""
    if call in NEEDED:
        # an index or an address that was valid a moment ago: the device has gone meanwhile
        gone = code in (INVALID_ARGUMENT, 6, 28) and "Handle" in call
        return "gpu_lost" if gone else _OF_NEEDED.get(code, "unknown_error")
    return _OF_ANY.get(code)
