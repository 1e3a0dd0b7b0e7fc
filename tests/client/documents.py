"""Status documents for tests: the illustrations of the screen designs as data."""

from __future__ import annotations

from typing import Any

GIB = 1 << 30
MIB = 1 << 20
NOW = 1_760_000_669.0
"""Unix time of all documents: 09:04:29 UTC."""
REF = "qwen2.5-32b-instruct:Q4_K_M"


def _row(ago: float, **changes: Any) -> dict[str, Any]:
    return {
        "request_id": f"r{int(ago)}",
        "started_at": NOW - ago,
        "model": "qwen2.5-32b",
        "served_model": "qwen2.5-32b",
        "route": "local",
        "reason": "local.ok",
        "lane": "interactive",
        "path": "/v1/chat/completions",
        "status": 200,
        "tokens_in": 311,
        "tokens_out": 402,
        "queue_ms": 0.0,
        "ttft_ms": 800.0,
        "tokens_per_second": 5.9,
        "total_ms": 68_900.0,
        "degraded": None,
        "client": "127.0.0.1",
    } | changes


def _engine(**changes: Any) -> dict[str, Any]:
    return {
        "id": "e1",
        "model": REF,
        "kind": "llama-server",
        "build": "llama-server b7012",
        "pid": 48_123,
        "state": "ready",
        "gpu_layers": 35,
        "n_layer": 64,
        "ctx": 8192,
        "parallel": 2,
        "slots_busy": 1,
        "tokens_per_second": 5.9,
        "restarts": 0,
        "ready_at": NOW - 8_040,
        "error": None,
        "cause": None,
        "hint": None,
        "last_lines": [],
        "load_progress": None,
    } | changes


def _gpu(**changes: Any) -> dict[str, Any]:
    return {
        "id": "GPU-0",
        "name": "GeForce RTX 4070",
        "backend": "cuda",
        "total": 12_282 * MIB,
        "free": 544 * MIB,
        "used_by_engine": 11_326 * MIB,
        "temperature": 71.0,
        "slowdown_at": 83.0,
        "reasons": [],
        "power": 186.0,
        "power_limit": 200.0,
        "utilisation": 97.0,
        "state": "cool",
        "age_s": 0.4,
    } | changes


def _device(name: str, **sizes: int | None) -> dict[str, Any]:
    keys = ("total", "free", "reserve", "model", "kv", "compute", "overhead", "spare")
    return {"name": name} | {key: sizes.get(key) for key in keys}


def _plan() -> dict[str, Any]:
    return {
        "model": REF,
        "arch": "qwen2",
        "engine_build": "llama-server b7012",
        "n_layer": 64,
        "gpu_layers": 35,
        "ctx": 8192,
        "parallel": 2,
        "kv_type": "f16",
        "flash_attn": "auto",
        "devices": [
            _device("CUDA0", total=12_282 * MIB, free=11_870 * MIB, model=9_782 * MIB, kv=1_120 * MIB)
        ],
        "host": _device("Host", total=62 * GIB, free=41 * GIB, model=9_144 * MIB, kv=928 * MIB),
        "fits": True,
        "measured": True,
        "reasons": [
            {"code": "layers", "text": "35 of 65 layers fit 11.6 GiB free on CUDA0", "n_bytes": 9_782 * MIB},
            {"code": "reserve", "text": "512 MiB kept free", "n_bytes": 512 * MIB},
        ],
        "flags": ["-ngl", "35"],
    }


def normal() -> dict[str, Any]:
    """A 32B model split over GPU and CPU, a remote, and four requests."""
    return {
        "daemon": {"pid": 4711, "version": "0.1.0", "url": "http://127.0.0.1:8417", "started": NOW - 8_100},
        "model": {
            "ref": REF,
            "name": "Qwen2.5-32B-Instruct",
            "quant": "Q4_K_M",
            "size": 18 * GIB + 512 * MIB,
        },
        "plan": _plan(),
        "engines": [_engine()],
        "gpus": [_gpu()],
        "thermal": "cool",
        "factor": 1.0,
        "queue": {"waiting": 2, "running": 1, "lanes": {"interactive": 1, "batch": 1}, "predicted_wait": 3.2},
        "remotes": [
            {
                "name": "vllm",
                "kind": "vllm",
                "url": "http://vllm.lan:8000/v1",
                "state": "up",
                "latency_ms": 41.0,
            }
        ],
        "downloads": [],
        "today": {"local": 132, "remote": 9, "errors": 2},
        "notes": [],
        "requests": {
            "running": [_row(0, status=None, tokens_in=1204, tokens_out=86, ttft_ms=2900.0, total_ms=None)],
            "recent": [
                _row(31),
                _row(
                    139,
                    route="remote",
                    reason="remote.context",
                    served_model="qwen2.5-72b",
                    tokens_in=31_066,
                    tokens_out=240,
                    ttft_ms=1900.0,
                    tokens_per_second=38.4,
                    total_ms=8200.0,
                    degraded=["remote"],
                ),
                _row(
                    165,
                    status=499,
                    tokens_in=198,
                    tokens_out=0,
                    ttft_ms=None,
                    tokens_per_second=None,
                    total_ms=400.0,
                ),
            ],
        },
        "gateway": {"url": "http://127.0.0.1:8417/v1"},
        "routing": {"policy": "local-first"},
        "host": {
            "ram_total": int(62.7 * GIB),
            "ram_available": int(41.3 * GIB),
            "cpu_percent": 62.0,
            "disk_free": 212 * GIB,
        },
    }


def empty() -> dict[str, Any]:
    """First run: a daemon without a model."""
    return normal() | {
        "model": None,
        "plan": None,
        "engines": [],
        "gpus": [_gpu(used_by_engine=None, free=11_870 * MIB, utilisation=2.0, power=21.0, temperature=41.0)],
        "queue": {"waiting": 0, "running": 0, "lanes": {}, "predicted_wait": None},
        "remotes": [],
        "today": {"local": 0, "remote": 0, "errors": 0},
        "requests": {"running": [], "recent": []},
    }


def loading() -> dict[str, Any]:
    """The engine reads its tensors; a second model is on its way to the disk."""
    return normal() | {
        "engines": [
            _engine(
                state="loading",
                ready_at=None,
                started_at=NOW - 18,
                gpu_layers=None,
                slots_busy=None,
                tokens_per_second=None,
                load_progress=0.43,
                last_lines=["load_tensors: offloading 35 repeating layers to GPU", "......"],
            )
        ],
        "downloads": [
            {
                "id": "d1",
                "ref": "mistral-small-24b-instruct:Q4_K_M",
                "phase": "downloading",
                "done": int(5.7 * GIB),
                "total": int(13.3 * GIB),
                "rate": 38.2 * MIB,
                "eta_s": 204.0,
                "resumable": True,
                "message": None,
            }
        ],
        "requests": {"running": [], "recent": []},
    }


OTHERS = ("gemma-3-270m:Q4_K_M", "qwen3-4b:Q4_K_M", "phi-4:Q4_K_M")


def resident(ref: str, **changes: Any) -> dict[str, Any]:
    """The row of one model of a pool."""
    return _engine(
        id=ref, model=ref, default=False, pinned=False, waiting=0, wanted=0, makes_way=False, slots_busy=0,
        last_used=NOW - 60, unload_at=NOW + 720, load_s=4.2, tokens_per_second=None,
    ) | changes  # fmt: skip


def several() -> dict[str, Any]:
    """The default, one that makes way for one that is being loaded, and one that failed."""
    gemma, qwen, phi = OTHERS
    return normal() | {
        "engines": [
            resident(REF, default=True, pinned=True, wanted=2, waiting=1, slots_busy=1, unload_at=None,
                     tokens_per_second=5.9),
            resident(gemma, n_layer=18, gpu_layers=19, parallel=4, slots_busy=2, wanted=2, makes_way=True,
                     unload_at=None, tokens_per_second=143.2, state="busy"),
            resident(qwen, state="loading", gpu_layers=None, n_layer=36, parallel=None, slots_busy=None,
                     wanted=3, ready_at=None, started_at=NOW - 4, load_progress=0.25, load_estimate_s=16.0,
                     unload_at=None),
            resident(phi, state="failed", pid=None, gpu_layers=None, ready_at=None, unload_at=None,
                     error="The engine ended while loading (exit code 1).",
                     cause="The GPU ran out of memory.", hint="Load it with fewer layers."),
        ]
    }  # fmt: skip


def shelf() -> dict[str, Any]:
    """`/api/models`: what is on the disk beside the loaded ones, and what is not here."""

    def row(ref: str, state: str = "here", **changes: Any) -> dict[str, Any]:
        fits = {"where": "gpu", "text": "all 37 layers on the GPU", "how": "computed", "estimated": False}
        return {"ref": ref, "id": ref.partition(":")[0], "quant": "Q4_K_M", "size": 2 * GIB, "state": state,
                "loaded": False, "fits": fits, "used_at": None, "family": None, "name": None,
                "license": "apache-2.0", "license_note": None, "use": ["chat"], "pin": "catalog",
                "arrived": None, "disk": 2 * GIB} | changes  # fmt: skip

    return {
        "models": [
            row(REF, size=18 * GIB + 512 * MIB, loaded=True), row(OTHERS[0], size=241 * MIB, loaded=True),
            row(OTHERS[1]), row(OTHERS[2]), row("mistral-small-24b-instruct:Q4_K_M", used_at=NOW - 7_200),
            row("smollm2-135m-instruct:Q4_1", size=94 * MIB), row("deepseek-v3:Q4_K_M", "absent"),
        ]
    }  # fmt: skip


def download(**changes: Any) -> dict[str, Any]:
    """A transfer that runs."""
    return {
        "id": "1", "ref": "mistral-small-24b-instruct:Q4_K_M", "file": "Mistral-Small-Q4_K_M.gguf",
        "phase": "downloading", "done": int(5.7 * GIB), "total": int(13.3 * GIB), "rate": 38.2 * MIB,
        "eta_s": 204.0, "resumable": True, "paused": False, "finished": False, "place": None, "limit": None,
        "repair": False, "fetched": None, "message": None, "error": None,
    } | changes  # fmt: skip


def downloads() -> dict[str, Any]:
    """One of each state: what the downloads' screen is for."""
    error = {
        "code": "disk_full", "message": "The disk has no room for gemma-2-27b-it-Q5_K_M.gguf.",
        "cause": "It needs 18.1 GiB and 2.0 GiB of reserve, 9.1 GiB are free.",
        "hint": "Free some space: `appliance models prune --dry-run` lists what can go.",
    }  # fmt: skip
    still = {"rate": None, "eta_s": None}
    return normal() | {
        "downloads": [
            download(),
            download(
                id="2", ref="qwen3-8b:Q4_K_M", phase="repairing", done=3 * GIB, total=5 * GIB, limit=5 * MIB
            ),
            download(id="3", ref="gemma-2-27b-it:Q5_K_M", phase="failed", finished=True, error=error, **still)
            | {"message": error["message"]},
            download(id="4", ref="smollm2-135m-instruct:Q4_1", phase="waiting", done=0, total=98_362_432,
                     place=1, message="place 1 in the queue", resumable=False, **still),
            download(id="5", ref="phi-4:Q4_K_M", phase="paused", paused=True, **still)
            | {"message": "what has arrived is kept"},
            download(id="6", ref="bge-m3:Q8_0", phase="done", finished=True, done=GIB, total=GIB, **still),
            download(id="7", ref="llama-3.1-8b-instruct:Q8_0", phase="cancelled", finished=True, **still),
        ]
    }  # fmt: skip


def failed() -> dict[str, Any]:
    """The engine ended three times while loading; the remote still answers."""
    return normal() | {
        "engines": [
            _engine(
                state="failed",
                pid=None,
                ready_at=None,
                restarts=3,
                gpu_layers=None,
                slots_busy=None,
                tokens_per_second=None,
                error="The engine ended while loading (exit code 1).",
                cause="The GPU ran out of memory.",
                hint="Free GPU memory, or load it with fewer layers: appliance up --gpu-layers 32",
                last_lines=[
                    "E ggml_cuda: cudaMalloc failed: out of memory",
                    "E llama_init_from_model: failed to allocate compute buffers",
                ],
            )
        ],
        "gpus": [_gpu(used_by_engine=None, free=11_020 * MIB, utilisation=2.0, power=21.0, temperature=49.0)],
    }


def cpu_only() -> dict[str, Any]:
    """No GPU: a small model on the CPU. What can't be known is null."""
    return normal() | {
        "model": {
            "ref": "smollm2-135m-instruct:Q4_1",
            "name": "SmolLM2 135M Instruct",
            "quant": "Q4_1",
            "size": 98_362_432,
        },
        "plan": _plan()
        | {
            "n_layer": 30,
            "gpu_layers": 0,
            "devices": [],
            "reasons": [{"code": "no_gpu", "text": "no GPU: all 30 layers run on the CPU", "n_bytes": None}],
        },
        "engines": [
            _engine(
                model="smollm2-135m-instruct:Q4_1",
                kind="xllamacpp",
                build="xllamacpp 2026.10.11549",
                gpu_layers=0,
                n_layer=30,
                slots_busy=0,
                tokens_per_second=None,
            )
        ],
        "gpus": [],
        "thermal": "unknown",
        "factor": 1.0,
        "remotes": [],
        "queue": {"waiting": 0, "running": 0, "lanes": {}, "predicted_wait": None},
        "notes": [
            {
                "code": "no_gpu_engine",
                "since": NOW - 60,
                "detail": "NVML library not found",
                "todo": "Install an engine for this GPU: appliance engines install cuda",
            }
        ],
        "requests": {"running": [], "recent": []},
    }
