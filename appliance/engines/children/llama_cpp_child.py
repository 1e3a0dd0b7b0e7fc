"""The OpenAI server of `llama-cpp-python`, with its key from the environment instead of argv.

Reads one JSON object from stdin (see `appliance.engines.adapters`). It has no parallel slots: requests wait
for each other, and `interrupt_requests` must be off, or a second request would cut a running stream.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

_INFO, _CONTINUED = 2, 5
"""ggml.h, enum ggml_log_level."""


def _log_from_info_up(llama_cpp: Any) -> Any:
    """Send llama.cpp's lines to stderr, without the debug ones: a hundred for each graph that is built."""
    state = {"shown": True}

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def callback(level: int, text: bytes, _: Any) -> None:
        if level != _CONTINUED:
            state["shown"] = level >= _INFO or level == 0
        if state["shown"]:
            sys.stderr.buffer.write(text)
            sys.stderr.buffer.flush()

    llama_cpp.llama_log_set(callback, None)
    return callback


def _use_devices(llama_cpp: Any, names: list[str] | None) -> None:
    """Keep to the planned devices; none of them for an empty list. Its settings can't say it, but the
    library's parameters below can, and the package starts from their defaults.
    """
    if names is None:
        return
    low = llama_cpp.llama_cpp
    found: list[int | None] = []
    if names:
        by_name = low._lib.ggml_backend_dev_by_name
        by_name.argtypes, by_name.restype = [ctypes.c_char_p], ctypes.c_void_p
        found = [by_name(name.encode()) for name in names]
    if None in found:
        raise ValueError(f"there is no device {names[found.index(None)]}")
    chosen = (ctypes.c_void_p * (len(found) + 1))(*found, None)  # ends with a null pointer
    defaults = low.llama_model_default_params

    def with_devices() -> Any:
        params = defaults()
        params.devices = ctypes.addressof(chosen)
        return params

    llama_cpp.llama_model_default_params = low.llama_model_default_params = with_devices


def _use_more(llama_cpp: Any, spec: dict[str, Any]) -> None:
    """What the model's class can be told, and the server's settings can't: pooling, and an adapter's scale.

    Without pooling, a chat model would answer one vector per token, unscaled; without `truncate` off, what
    is too long would be cut without a word.
    """
    more: dict[str, Any] = {}
    if spec["embedding"] and spec["pooling"]:
        more["pooling_type"] = getattr(llama_cpp, "LLAMA_POOLING_TYPE_" + spec["pooling"].upper())
    for adapter in spec["lora"]:
        more["lora_scale"] = adapter["scale"]

    class Told(llama_cpp.Llama):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **(settings | more))

        def embed(self, *args: Any, **settings: Any) -> Any:
            return super().embed(*args, **(settings | {"normalize": True, "truncate": False}))

    llama_cpp.Llama = Told


def main() -> int:
    spec: dict[str, Any] = json.load(sys.stdin)
    key = os.environ.pop("LLAMA_API_KEY", "")
    import llama_cpp
    import uvicorn
    from llama_cpp.server.app import create_app
    from llama_cpp.server.settings import ModelSettings, ServerSettings

    quiet = _log_from_info_up(llama_cpp)  # noqa: F841 - llama.cpp calls it as long as this frame lives
    try:
        _use_devices(llama_cpp, spec["devices"])
    except ValueError as error:
        sys.stderr.write(f"llama-cpp-python: {error}\n")
        return 1
    _use_more(llama_cpp, spec)
    cache_type = getattr(llama_cpp, "GGML_TYPE_" + spec["kv_type"].upper())
    model = {
        "model": spec["model"],
        "model_alias": spec["alias"],
        "n_ctx": spec["ctx"],
        "n_gpu_layers": spec["gpu_layers"],
        "offload_kqv": spec["devices"] != [],
        "type_k": cache_type,
        "type_v": cache_type,
        "flash_attn": spec["flash_attn"] != "off",  # `auto`, which it lacks, is `on` in llama-server
        "embedding": spec["embedding"],
        "logits_all": False,  # else one logit row per token of the context: n_vocab * n_ctx * 4 bytes
        "use_mmap": spec["load_mode"] != "none",
        "use_mlock": False,
        "verbose": True,  # its load lines are what the supervisor reads
    }
    if spec["threads"]:
        model["n_threads"] = model["n_threads_batch"] = spec["threads"]
    if spec["threads_batch"]:
        model["n_threads_batch"] = spec["threads_batch"]
    model["n_ubatch"] = spec["n_ubatch"]
    # a vector is pooled within one micro-batch, so a text must not go beyond it
    model["n_batch"] = spec["n_ubatch"] if spec["embedding"] else max(spec["n_batch"], spec["n_ubatch"])
    if spec["lora"]:
        model["lora_path"] = spec["lora"][0]["path"]
    model["split_mode"] = getattr(llama_cpp, "LLAMA_SPLIT_MODE_" + spec["split"].upper())
    if spec["tensor_split"]:
        model["tensor_split"] = [float(share) for share in spec["tensor_split"]]
    server = {"host": spec["host"], "port": spec["port"], "api_key": key, "interrupt_requests": False}
    try:
        app = create_app(
            server_settings=ServerSettings.model_validate(server),
            model_settings=[ModelSettings.model_validate(model)],
        )
    except (ValueError, RuntimeError, AssertionError) as error:
        sys.stderr.write(f"llama-cpp-python: {error}\n")
        return 1
    where: dict[str, Any] = {"host": spec["host"], "port": spec["port"]}
    if spec["host"].endswith(".sock"):
        where = {"uds": spec["host"]}
    uvicorn.run(app, log_level="warning", access_log=False, timeout_graceful_shutdown=3, **where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
