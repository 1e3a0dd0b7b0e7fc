"""Which lines of a log may leave the machine. Nothing of a request may: so what is not known stays here.

An engine may print prompts (llama.cpp does when it is verbose, and other servers write what they like). Its
lines are kept only in forms that hold nothing but fixed words, numbers and names of devices. Of the daemon's
log, a line's own words stay, and what it quotes of others is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LEFT_OUT = "[left out]"

_PREFIX = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} [A-Z] ")
"""Time and level, as llama.cpp writes them."""
_TOKEN = re.compile(r"[^\W\d]\w*|\d[\w.,]*|[^\w\s]")
_NUMBER = re.compile(r"\d[\d.,]*(?:e\d+)?(?:[KMGT]i?B|B|ms|us|s|x)?")
_DEVICE = re.compile(
    r"(?:CUDA|ROCm|HIP|Vulkan|Metal|MTL|SYCL|CANN|MUSA|OpenCL|CPU|Host|AMX|BLAS|RPC)(?:_?\d{1,3})?"
    r"(?:_(?:Host|Mapped|REPACK|Split))?"
)
_WORDS = """
    MiB GiB KiB B ms s us t tokens token layers layer cells seqs model models KV RS compute output
    buffer buffers size total free self context unaccounted memory breakdown offloaded offloading
    repeating to GPU K V f16 f32 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 true false auto enabled disabled
    n_ctx n_ctx_seq n_ctx_train n_ctx_slot n_batch n_ubatch n_seq_max n_slots n_outputs_max
    n_outputs_max_per_seq n_rs_seq flash_attn kv_unified causal_attn freq_base freq_scale n_layer
    n_embd n_head n_head_kv n_vocab n_expert n_expert_used n_gpu_layers n_threads graph nodes splits
    with bs loaded loading tensors reserving reserve took sched copies constructing arch file format
    type params warming up the run an empty done failed allocate allocating of for cache kv out
    device devices using used no not enough need needed fits fit into reduce reduced is on at per
    projected will leave changes successfully seconds vs unknown id llama_context initial parameters
    data getting fitting n_embd_head_k_all attn_rot_k attn_rot_v n_rot_k n_rot_v input objects
"""
_KNOWN = frozenset(_WORDS.split())
_MARKS = frozenset("-|()[]=+*/:,.%'<>~")
_SAID_BY = re.compile(
    r"(?:load_tensors|llama_context|llama_kv_cache\w{0,40}|llama_memory_\w{1,40}|llama_init_from_model|print_info"
    r"|graph_reserve|sched_reserve|common_memory_breakdown_print|common_init_from_params"
    r"|llama_params_fit\w{0,40}|common_params_fit_impl|common_fit_params|llama_prepare_model_devices"
    r"|ggml_\w{1,60}): "
)
_DEEPEST = 3
_ASIDE = re.compile(r"\([^()]{0,80}\)")
_FIXED = re.compile(
    r"CUDA error: (?:out of memory|an illegal memory access was encountered|unspecified launch failure"
    r"|device-side assert triggered|the launch timed out and was terminated)"
    r"|cudaMalloc failed: out of memory|ErrorOutOfDeviceMemory|ErrorOutOfHostMemory|ErrorDeviceLost"
    r"|std::bad_alloc|GGML_ASSERT|Segmentation fault|Aborted|Illegal instruction"
)
"""Words of a failure that are kept without the rest of their line."""


def of_engine(lines: Iterable[str]) -> tuple[list[str], int]:
    """The lines that hold no text of anybody, and how many were left out."""
    kept: list[str] = []
    left_out = 0
    for line in lines:
        shown = _engine_line(line.rstrip())
        if shown is None:
            left_out += bool(line.strip())
        else:
            kept.append(shown)
    return kept, left_out


def _engine_line(line: str) -> str | None:
    prefix = _PREFIX.match(line)
    lead, rest = (prefix[0], line[prefix.end() :]) if prefix else ("", line)
    said = _SAID_BY.match(rest)
    if said is not None:
        words = _without_asides(rest[said.end() :])
        if all(map(_harmless, _TOKEN.findall(words))):
            return f"{lead}{said[0]}{words}"
    failure = _FIXED.search(rest)
    return f"{lead}{failure[0]}" if failure else None


def _without_asides(text: str) -> str:
    """Brackets go with what is in them (`(NVIDIA RTX 4090)`, also within others), unless it is harmless."""
    for _ in range(_DEEPEST):
        text = _ASIDE.sub(
            lambda aside: aside[0] if all(map(_harmless, _TOKEN.findall(aside[0]))) else "", text
        )
    return text


def _harmless(token: str) -> bool:
    """A word that llama.cpp uses, a mark, a number, or the name of a device."""
    if token in _KNOWN or token in _MARKS:
        return True
    return (_NUMBER if token[0].isdigit() else _DEVICE).fullmatch(token) is not None


_HEAD = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) (appliance(?:\.[a-z_]+)*): (.*)")
_FRAME = re.compile(r'\s+File "([^"\n]{1,300})", line (\d+), in (\w{1,80}|<\w+>)$')
_RAISED = re.compile(
    r"([A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt|Exit|Failed|Rejected|Warning))(?:: .*)?$"
)
_TRACE = "Traceback (most recent call last):"
_OURS = re.compile(r"(?:^|[\\/])((?:appliance|tui|site-packages|lib)[\\/].*)$")


def of_daemon(lines: Iterable[str]) -> tuple[list[str], int]:
    """Each line's own words; of a traceback, where it was and what kind of error."""
    kept: list[str] = []
    left_out = 0
    for line in lines:
        shown = _daemon_line(line.rstrip())
        if shown is None:
            left_out += bool(line.strip())
        else:
            kept.append(shown)
    return kept, left_out


def _daemon_line(line: str) -> str | None:
    if head := _HEAD.fullmatch(line):
        at, level, logger, message = head.groups()
        return f"{at} {level} {logger}: {_own_words(message, 2 if logger.startswith(_PLAIN) else 1)}"
    if frame := _FRAME.fullmatch(line):
        ours = _OURS.search(frame[1])
        return f"  {ours[1] if ours else LEFT_OUT}, line {frame[2]}, in {frame[3]}"
    if line == _TRACE:
        return line
    raised = _RAISED.fullmatch(line)
    return raised[1] if raised else None


_PLAIN = ("appliance.daemon", "appliance.monitor", "appliance.journal")
"""Rooms whose lines begin with a name of ours (`m:Q4_K_M: ...`) and go on in our own sentences."""
_QUOTES = re.compile(r": |[(\"'`{\[]")


def _own_words(message: str, parts: int) -> str:
    """Up to what may be quoted: a path of a client, or what somebody else said after a colon."""
    if message.startswith("/"):
        return LEFT_OUT
    for cut in _QUOTES.finditer(message):
        parts -= cut[0] == ": "
        if parts <= 0 or cut[0] != ": ":
            return f"{message[: cut.start()]}{cut[0].rstrip()} {LEFT_OUT}"
    return message
