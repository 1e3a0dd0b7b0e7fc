"""Prints the Vulkan devices of this machine as one JSON list: name, kind, the largest tensor, PCI address.

In a process of its own, since a driver may hang or crash while it is asked. Standard library only. Structures
are laid out as in vulkan_core.h (1.3); a driver leaves those that it does not know as they are.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import struct
import sys
from typing import Any

_LIBRARY = {"win32": "vulkan-1.dll", "darwin": "libvulkan.1.dylib"}.get(sys.platform, "libvulkan.so.1")
_KINDS = {1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
"""VkPhysicalDeviceType."""
_API = (1 << 22) | (1 << 12)
"""Vulkan 1.1: the oldest with vkGetPhysicalDeviceProperties2, and below what engines need."""
_APPLICATION_INFO, _INSTANCE_INFO, _PROPERTIES_2 = 0, 1, 1_000_059_001
_ID, _MAINTENANCE_3, _PCI, _MAINTENANCE_4 = 1_000_071_004, 1_000_168_000, 1_000_212_000, 1_000_413_001
"""VkStructureType."""
_AT = 16
"""Where the content of a structure with `sType` and `pNext` begins, in a process of 64 bits."""
_TYPE, _NAME, _LIMITS = _AT + 16, _AT + 20, _AT + 296
"""In VkPhysicalDeviceProperties2: deviceType, deviceName, limits."""
_STORAGE_RANGE = _LIMITS + 7 * 4
"""maxStorageBufferRange, the eighth number of the limits."""
_MOST = 64
_EXTENSION = 260
_WIDE = "VK_EXT_shader_64bit_indexing"
"""With it llama.cpp does not heed maxStorageBufferRange."""


def devices() -> list[dict[str, Any]]:
    """Every physical device, in the loader's order, which is the one that engines count in."""
    vulkan = ctypes.CDLL(_LIBRARY)
    for name in ("vkCreateInstance", "vkEnumeratePhysicalDevices", "vkEnumerateDeviceExtensionProperties"):
        getattr(vulkan, name).restype = ctypes.c_int32
    instance = _instance(vulkan)
    count, handles = ctypes.c_uint32(_MOST), (ctypes.c_void_p * _MOST)()
    code = vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    if code < 0:
        raise OSError(f"vkEnumeratePhysicalDevices: {code}")
    return [_device(vulkan, ctypes.c_void_p(handles[index])) for index in range(count.value)]


def _instance(vulkan: ctypes.CDLL) -> ctypes.c_void_p:
    application = _structure(_APPLICATION_INFO, 48)
    struct.pack_into("=I", application, 44, _API)
    info = _structure(_INSTANCE_INFO, 64)
    struct.pack_into("=Q", info, 24, ctypes.addressof(application))
    instance = ctypes.c_void_p()
    code = vulkan.vkCreateInstance(info, None, ctypes.byref(instance))
    if code != 0:
        raise OSError(f"vkCreateInstance: {code}")
    return instance


def _device(vulkan: ctypes.CDLL, handle: ctypes.c_void_p) -> dict[str, Any]:
    buffer_size, allocation = _structure(_MAINTENANCE_4, 24), _structure(_MAINTENANCE_3, 32)
    pci, identity = _structure(_PCI, 32), _structure(_ID, 64)
    struct.pack_into("=I", pci, _AT, 0xFFFFFFFF)  # no such domain: stays when the driver tells none
    properties = _structure(_PROPERTIES_2, 1024)
    chain = [properties, buffer_size, allocation, pci, identity]
    for this, following in itertools.pairwise(chain):
        struct.pack_into("=Q", this, 8, ctypes.addressof(following))
    vulkan.vkGetPhysicalDeviceProperties2(handle, properties)
    domain, bus, slot, function = struct.unpack_from("=IIII", pci, _AT)
    raw = properties.raw
    return {
        "name": raw[_NAME : _NAME + 256].split(b"\0")[0].decode("utf-8", "replace"),
        "kind": _KINDS.get(struct.unpack_from("=I", raw, _TYPE)[0], "other"),
        "largest": _largest(
            struct.unpack_from("=I", raw, _STORAGE_RANGE)[0],
            struct.unpack_from("=Q", buffer_size, _AT)[0] or struct.unpack_from("=Q", allocation, _AT + 8)[0],
            _WIDE in _extensions(vulkan, handle),
        ),
        "pci": None if domain == 0xFFFFFFFF else f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}",
        "uuid": identity.raw[_AT : _AT + 16].hex(),
    }


def _largest(storage_range: int, buffer_size: int, wide: bool) -> int | None:
    """Bytes of the largest tensor that ggml's Vulkan backend takes (its `supports_op`)."""
    limits = [buffer_size] if wide and buffer_size else [storage_range, buffer_size]
    return min((limit for limit in limits if limit), default=None)


def _extensions(vulkan: ctypes.CDLL, handle: ctypes.c_void_p) -> set[str]:
    count = ctypes.c_uint32(0)
    vulkan.vkEnumerateDeviceExtensionProperties(handle, None, ctypes.byref(count), None)
    rows = ctypes.create_string_buffer(_EXTENSION * max(1, count.value))
    vulkan.vkEnumerateDeviceExtensionProperties(handle, None, ctypes.byref(count), rows)
    starts = range(0, _EXTENSION * count.value, _EXTENSION)
    return {rows.raw[at : at + 256].split(b"\0")[0].decode("ascii", "replace") for at in starts}


def _structure(kind: int, size: int) -> ctypes.Array[ctypes.c_char]:
    made = ctypes.create_string_buffer(size)
    struct.pack_into("=I", made, 0, kind)
    return made


if __name__ == "__main__":
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        raise SystemExit("only for 64 bits")
    sys.stdout.write("\n" + json.dumps(devices()) + "\n")
