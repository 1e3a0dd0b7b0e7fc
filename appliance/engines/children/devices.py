"""Prints the devices that a Python engine sees, as one JSON list. `devices.py xllamacpp [HOME]|llama_cpp`.

In a process of its own, since a driver may hang or crash while it is asked.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}
"""ggml-backend.h, enum ggml_backend_dev_type."""


def xllamacpp_devices(home: str | None = None) -> list[dict[str, Any]]:
    """With `home`, of the package that lies there; another one is not asked in its place."""
    import xllamacpp

    if home is not None and not _lies_in(home, xllamacpp.__file__):
        raise SystemExit("the installed build is not here any more")
    return [
        {
            "name": device["name"],
            "description": device["description"],
            "total": device["memory_total"],
            "free": device["memory_free"],
            "kind": _KINDS.get(int(device["type"]), "other"),
            "pci": device.get("device_id"),
        }
        for device in xllamacpp.get_device_info()
    ]


def _lies_in(folder: str, file: str) -> bool:
    return os.path.realpath(file).startswith(os.path.realpath(folder) + os.sep)


def llama_cpp_devices() -> list[dict[str, Any]]:
    """Its Python side has no device list; the library below has."""
    import llama_cpp

    llama_cpp.llama_backend_init()
    lib = llama_cpp.llama_cpp._lib  # a look-up goes on into the libraries that it needs
    lib.ggml_backend_dev_count.restype = ctypes.c_size_t
    lib.ggml_backend_dev_get.argtypes, lib.ggml_backend_dev_get.restype = [ctypes.c_size_t], ctypes.c_void_p
    for name in ("ggml_backend_dev_name", "ggml_backend_dev_description"):
        function = getattr(lib, name)
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_char_p
    lib.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    size_p = ctypes.POINTER(ctypes.c_size_t)
    lib.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, size_p, size_p]
    found = []
    for index in range(lib.ggml_backend_dev_count()):
        device = lib.ggml_backend_dev_get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        lib.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(
            {
                "name": lib.ggml_backend_dev_name(device).decode(errors="replace"),
                "description": lib.ggml_backend_dev_description(device).decode(errors="replace"),
                "total": total.value,
                "free": free.value,
                "kind": _KINDS.get(lib.ggml_backend_dev_type(device), "other"),
            }
        )
    return found


if __name__ == "__main__":
    listed = xllamacpp_devices(*sys.argv[2:]) if sys.argv[1] == "xllamacpp" else llama_cpp_devices()
    sys.stdout.write("\n" + json.dumps(listed) + "\n")
