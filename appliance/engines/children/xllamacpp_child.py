"""llama.cpp's own server inside a Python process, by the `xllamacpp` package.

Reads one JSON object from stdin (see `appliance.engines.adapters`), the key from LLAMA_API_KEY: the package
ignores that variable, so it is copied into the settings here. Ends on SIGTERM; before the model is loaded,
SIGTERM ends it at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

_GPU, _IGPU = 1, 2
"""ggml-backend.h, enum ggml_backend_dev_type."""
EXPERTS = r"blk\.{}\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""`LLM_FFN_EXPS_REGEX` and the pattern of one block in llama.cpp's common/common.h."""
ALL_LAYERS = -2
"""As `-ngl all` is kept."""


def parameters(spec: dict[str, Any], key: str) -> Any:
    """The package's defaults are open ones (any origin, UI, fit on): each is set here."""
    import xllamacpp as x

    params = x.CommonParams()
    params.model.path = spec["model"]
    params.model_alias = {spec["alias"]}
    params.hostnames = [spec["host"]]
    params.port = spec["port"]
    params.api_keys = [key]
    params.cors_origins = "localhost"
    params.ui = False
    params.endpoint_metrics = True
    params.verbosity = 4  # load and buffer lines; 5 would log prompts
    params.n_ctx = spec["ctx"]
    params.n_parallel = spec["parallel"]
    params.n_gpu_layers = spec["gpu_layers"]
    use_split(params, spec["split"], spec["tensor_split"], x)
    use_devices(params, spec["devices"], x)
    params.fit_params = spec["fit"]
    params.warmup = spec["warmup"]
    cache_type = getattr(x.ggml_type, "GGML_TYPE_" + spec["kv_type"].upper())
    params.cache_type_k = params.cache_type_v = cache_type
    flash = {"on": "ENABLED", "off": "DISABLED"}.get(spec["flash_attn"], "AUTO")
    params.flash_attn_type = getattr(x.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + flash)
    if spec["threads"]:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = spec["threads"]
    if spec["threads_batch"]:
        params.cpuparams_batch.n_threads = spec["threads_batch"]
    params.n_cache_reuse = spec["cache_reuse"]
    if spec["slot_save_path"] is not None:
        params.slot_save_path = os.path.join(spec["slot_save_path"], "")  # it adds the file's name as it is
    if spec["cache_ram_mib"] is not None:
        params.cache_ram_mib = spec["cache_ram_mib"]
    params.n_ubatch = spec["n_ubatch"]
    params.n_batch = max(spec["n_batch"], spec["n_ubatch"])
    use_experts(params, spec["cpu_moe"])
    if spec["mmproj"]:
        use_projector(params, spec["mmproj"])
    if spec["draft"]:
        use_draft(params, spec["draft"], x)
    if spec["load_mode"] == "none" and hasattr(x, "llama_load_mode"):
        params.load_mode = x.llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.lora_adapters = [x.CommonAdapterLoraInfo(one["path"], one["scale"]) for one in spec["lora"]]
    if spec["embedding"] or spec["reranking"]:
        use_vectors(params, "rank" if spec["reranking"] else spec["pooling"], x)
    return params


def use_vectors(params: Any, pooling: str | None, x: Any) -> None:
    """What `--embeddings` and `--reranking` turn into; None: pooling as the model's file says."""
    params.embedding = True
    if pooling is not None:
        params.pooling_type = getattr(x.llama_pooling_type, "LLAMA_POOLING_TYPE_" + pooling.upper())


def use_devices(params: Any, names: list[str] | None, x: Any) -> None:
    """Keep to the planned devices, as far as the package can: it has no list of devices.

    None of them: nothing is put or computed there. Exactly one: it becomes the main one, and the only one.
    Several can't be named; llama.cpp then uses all that it would choose by itself.
    """
    if names is None:
        return
    if not names:
        params.n_gpu_layers = 0
        params.no_kv_offload = params.no_op_offload = True
    elif len(names) == 1:
        gpus = [device for device in x.get_device_info() if int(device["type"]) in (_GPU, _IGPU)]
        usable = [device for device in gpus if int(device["type"]) == _GPU] or gpus  # as llama.cpp does
        listed = [device["name"] for device in usable]
        if names[0] not in listed:
            sys.stderr.write(f"xllamacpp: {names[0]} can't be chosen; there are {', '.join(listed)}\n")
            return
        params.main_gpu = listed.index(names[0])
        params.split_mode = x.llama_split_mode.LLAMA_SPLIT_MODE_NONE


def use_split(params: Any, split: str, shares: list[int], x: Any) -> None:
    """How several devices share the model. The package wants a share for every device that it could have."""
    params.split_mode = getattr(x.llama_split_mode, "LLAMA_SPLIT_MODE_" + split.upper())
    if shares:
        places = len(params.tensor_split)
        params.tensor_split = [float(share) for share in shares] + [0.0] * (places - len(shares))


def use_experts(params: Any, blocks: int) -> None:
    """Keep the routed experts of the first blocks in RAM: what `--n-cpu-moe` turns into."""
    if blocks:
        patterns = (EXPERTS.format(il) for il in range(blocks))
        params.tensor_buft_overrides = ",".join(f"{pattern}=CPU" for pattern in patterns)


def use_projector(params: Any, projector: dict[str, Any]) -> None:
    params.mmproj.path = projector["path"]
    params.mmproj_use_gpu = projector["device"] is not None
    if projector["device"]:
        params.mmproj_device = projector["device"]


def use_draft(params: Any, draft: dict[str, Any], x: Any) -> None:
    """A draft model on one device or on none. Its file alone would be loaded and left unused."""
    wanted = params.speculative.draft
    wanted.mparams.path = draft["path"]
    wanted.n_gpu_layers = 0 if draft["device"] is None else ALL_LAYERS
    if draft["device"] != "":
        wanted.devices = draft["device"] or "none"
    params.speculative.types = [x.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]


def main() -> int:
    spec = json.load(sys.stdin)
    import xllamacpp as x

    home = spec.get("home")
    if home is not None and not os.path.realpath(x.__file__).startswith(os.path.realpath(home) + os.sep):
        sys.stderr.write("xllamacpp: the installed build is not here any more\n")
        return 1
    try:
        params = parameters(spec, os.environ.pop("LLAMA_API_KEY", ""))
    except (AttributeError, ValueError) as error:
        sys.stderr.write(f"xllamacpp: this version can't be told what the plan needs: {error}\n")
        return 1
    try:
        server = x.Server(params)
    except RuntimeError as error:  # the log above has the reason
        sys.stderr.write(f"xllamacpp: {error}\n")
        return 1
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    late = threading.Timer(3.0, os._exit, (0,))  # a running batch may hold the server's own end back
    late.daemon = True
    late.start()
    del server
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
