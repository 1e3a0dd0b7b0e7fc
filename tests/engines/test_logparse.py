"""The log parser on recorded lines of real engines, and the failure texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.engines.failures import exit_text, explain, explain_line
from appliance.engines.logparse import LoadReader, on_host

RECORDED = Path(__file__).parent / "recorded"


def read(name: str) -> LoadReader:
    reader = LoadReader()
    for line in (RECORDED / name).read_text().splitlines():
        reader.feed(line)
    return reader


def test_a_vulkan_load_with_twelve_layers() -> None:
    reader = read("llama-server-vulkan-12-layers.log")
    assert reader.layers == (12, 31)
    assert reader.gpu_layers == 12
    assert reader.buffers["Vulkan0"] == {"model": 51.94, "kv": 33.0, "compute": 15.7}
    assert reader.buffers["Vulkan_Host"] == {"output": 0.38, "compute": 4.26}
    assert reader.buffers["CPU"] == {"kv": 57.0}
    assert (reader.slots, reader.ctx_slot, reader.n_ctx, reader.unified) == (2, 2048, 4096, False)
    assert reader.failure is None


def test_the_offload_line_without_a_device_counts_as_zero() -> None:
    reader = read("llama-server-no-device.log")
    assert reader.layers == (12, 31)  # the log says so; nothing is on a device
    assert reader.gpu_layers == 0


def test_a_cpu_build_prints_no_offload_line() -> None:
    reader = read("xllamacpp-cpu.log")
    assert reader.layers is None
    assert reader.gpu_layers == 0
    assert reader.buffers["CPU"] == {"output": 0.38, "kv": 90.0, "compute": 16.64}


@pytest.mark.parametrize(
    ("lines", "layers"),
    [
        ((), None),
        (("offloaded 0/31 layers to GPU",), 0),
        (("offloaded 12/31 layers to GPU",), None),  # printed with no device, too
        (("offloaded 12/31 layers to GPU", "CPU_Mapped model buffer size = 92.10 MiB"), 0),
        (("CUDA0 model buffer size = 51.94 MiB",), None),
        (("offloaded 12/31 layers to GPU", "CUDA0 model buffer size = 51.94 MiB"), 12),
        (("CUDA0 model buffer size = 0.00 MiB",), None),
    ],
)
def test_layers_are_unknown_until_the_log_tells(lines: tuple[str, ...], layers: int | None) -> None:
    reader = LoadReader()
    for line in lines:
        reader.feed(f"load_tensors: {line}")
    assert reader.gpu_layers == layers


def test_the_zero_lines_of_a_dry_run_are_replaced_by_the_real_ones() -> None:
    reader = LoadReader()
    for size, kv in (("0.00", "0.00"), ("51.94", "16.50")):
        reader.feed("load_tensors: loading model tensors, this can take a while... (load_mode = mmap)")
        reader.feed(f"load_tensors:      Vulkan0 model buffer size =    {size} MiB")
        reader.feed("llama_context: constructing llama_context")
        reader.feed(f"llama_kv_cache:    Vulkan0 KV buffer size =    {kv} MiB")
    assert reader.buffers["Vulkan0"] == {"model": 51.94, "kv": 16.5}


def test_two_caches_and_the_files_of_a_split_set_add_up() -> None:
    reader = LoadReader()
    reader.feed("load_tensors: loading model tensors, this can take a while...")
    reader.feed("load_tensors:        CUDA0 model buffer size =  1000.00 MiB")
    reader.feed("load_tensors:        CUDA0 model buffer size =   500.00 MiB")
    reader.feed("llama_context: constructing llama_context")
    reader.feed("llama_kv_cache:      CUDA0 KV buffer size =    24.00 MiB")  # full layers
    reader.feed("llama_kv_cache:      CUDA0 KV buffer size =    12.00 MiB")  # sliding window layers
    reader.feed("sched_reserve:      CUDA0 compute buffer size =   80.00 MiB")
    reader.feed("sched_reserve:      CUDA0 compute buffer size =   96.00 MiB")  # reserved again
    assert reader.buffers["CUDA0"] == {"model": 1500.0, "kv": 36.0, "compute": 96.0}


@pytest.mark.parametrize(
    ("name", "host"),
    [("CPU", True), ("CPU_Mapped", True), ("CPU_REPACK", True), ("AMX", True), ("Vulkan_Host", True),
     ("Vulkan0", False), ("CUDA0", False), ("MTL0_Mapped", False), ("ROCm1", False)],
)  # fmt: skip
def test_which_buffers_lie_in_ram(name: str, host: bool) -> None:
    assert on_host(name) is host


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ggml_vulkan: Device memory allocation of size 734003200 failed.", "GPU ran out of memory"),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB on device 0: cudaMalloc failed: "
         "out of memory", "GPU ran out of memory"),
        ("llama_init_from_model: failed to allocate compute pp buffers", "compute buffers"),
        ("vk::Queue::submit: ErrorDeviceLost", "lost the device"),
        ("srv start: couldn't bind HTTP server socket, hostname: /r/e.sock, port: 8080", "open its socket"),
        ("error: unknown argument: --no-ui", "one of our flags"),
        ("llama_model_load: error loading model: unknown model architecture: 'llama9'", "architecture"),
        ("x: error while loading shared libraries: libcuda.so.1: cannot open", "can't be started"),
    ],
)  # fmt: skip
def test_failure_texts(line: str, words: str) -> None:
    found = explain_line(line)
    assert found is not None
    assert words in found.cause
    assert found.hint


def test_the_more_exact_text_wins() -> None:
    reader = LoadReader()
    reader.feed("llama_kv_cache: failed to allocate buffer for kv cache")
    reader.feed("srv load_model: failed to load model, 'm.gguf'")
    reader.feed("srv init: exiting due to model loading error")
    assert explain(1, reader.failure).cause == "There is not enough memory for the KV cache."


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (1, "exit code 1", "refused its settings"),
        (-9, "signal 9 (SIGKILL)", "memory ran out"),
        (137, "exit code 137", "memory ran out"),
        (-6, "signal 6 (SIGABRT)", "gave up by itself"),
        (0xC0000005, "exit code 3221225477", "segmentation fault"),
        (77, "exit code 77", "ended by itself"),
        (None, "no exit code", "ended by itself"),
    ],
)
def test_exit_codes(code: int | None, text: str, words: str) -> None:
    assert exit_text(code) == text
    assert words in explain(code, None).cause
