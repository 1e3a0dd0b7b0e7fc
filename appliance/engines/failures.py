"""From an engine's last words and exit code to a cause and a next step.

The texts are llama.cpp's own (server and ggml backends); the more exact one wins over the general one.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from appliance.planning.values import HOST

UNKNOWN_PLACE = "unknown"
"""Memory ran out, and the log does not say where."""
_LESS_MEMORY = (
    "Close what else uses the memory, or start with fewer layers (--gpu-layers), a smaller --ctx, "
    "or fewer slots (--parallel)."
)
_OTHER_BUILD = "Use another engine: `appliance engines list` shows what there is."
AGAIN = "It is started again by itself."
"""Begins the hints after which nobody has to do anything; not true any more once the engine stays down."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Why, what to do, and how exact that is (a higher weight wins)."""

    cause: str
    hint: str
    weight: int = 1
    memory: str | None = None
    """The place whose memory ran out, as far as the text alone tells: `Host` or `unknown`."""


_TEXTS: tuple[tuple[re.Pattern[str], Explained], ...] = tuple(
    (re.compile(pattern), explained)
    for pattern, explained in (
        (
            r"failed to allocate buffer for kv cache|failed to allocate .*KV",
            Explained("There is not enough memory for the KV cache.", _LESS_MEMORY, 4, UNKNOWN_PLACE),
        ),
        (
            r"failed to allocate compute (pp )?buffers",
            Explained("There is not enough memory for the compute buffers.", _LESS_MEMORY, 4, UNKNOWN_PLACE),
        ),
        (
            r"std::system_error|(?:what\(\):|error loading model:)\s*Resource temporarily unavailable"
            r"|[Tt]hread (?:constructor|creation) failed|pthread_create.*(?:failed|unavailable)",
            Explained(
                "The computer's memory (RAM), or the number of threads that it allows, ran out.",
                _LESS_MEMORY,
                5,
                HOST,
            ),
        ),
        (
            r"std::bad_alloc|GGML_ASSERT\(\w+->mem_buffer != NULL\) failed"
            r"|mmap failed: Cannot allocate memory|ggml_aligned_malloc: insufficient memory"
            r"|ErrorOutOfHostMemory|LLVM ERROR: out of memory|^MemoryError"
            r"|(?:unable|failed) to allocate (?:CPU|AMX)\w* buffer",
            Explained("The computer's memory (RAM) ran out.", _LESS_MEMORY, 5, HOST),
        ),
        (
            r"unable to allocate \S+ buffer|cudaMalloc failed: out of memory|CUDA error: out of memory"
            r"|ErrorOutOfDeviceMemory|Device memory allocation of size \d+ failed"
            r"|failed to allocate [A-Z]\w* buffer of size"
            r"|kIOGPUCommandBufferCallbackErrorOutOfMemory|Insufficient Memory",
            Explained("The GPU ran out of memory.", _LESS_MEMORY, 5, UNKNOWN_PLACE),
        ),
        (
            r"ErrorDeviceLost|device lost on",
            Explained(
                "The GPU driver lost the device.",
                "Start again; when it comes back, run with --gpu-layers 0 and look at the system log.",
                5,
            ),
        ),
        (
            r"data is not within the file bounds|file is truncated|unexpectedly reached end of file",
            Explained(
                "The model file is cut short or damaged.", "Run `appliance models verify` on it.", 5
            ),
        ),
        (
            r"invalid magic characters|bad GGUF magic|failed to read (magic|header)|not a GGUF",
            Explained("The file is not a GGUF model.", "Run `appliance models verify` on it.", 5),
        ),
        (
            r"unknown model architecture: '([^']*)'",
            Explained(
                "This engine does not know the model's architecture.",
                "Use a newer engine: `appliance engines list` shows the builds here.",
                5,
            ),
        ),
        (
            r"couldn't bind HTTP server socket|address already in use",
            Explained("The engine could not open its socket.", "Start again.", 4),
        ),
        (
            r"failed to open GGUF file|No such file or directory",
            Explained("The model file can't be opened.", "`appliance models list` shows what is here.", 3),
        ),
        (
            r"unknown argument|invalid argument|error while handling argument",
            Explained("The engine does not know one of our flags.", _OTHER_BUILD, 4),
        ),
        (
            r"launcher: cannot start|error while loading shared libraries|Library not loaded"
            r"|ModuleNotFoundError",
            Explained(
                "The engine's program can't be started here.",
                "`appliance engines list` shows which engines do.",
                4,
            ),
        ),
        (
            r"failed to create_context with model|failed to create context",
            Explained("The engine could not create its context.", _LESS_MEMORY, 2),
        ),
        (
            r"failed to load model|exiting due to model loading error|Failed to load model",
            Explained("The engine could not load the model.", "Run `appliance models verify` on it.", 1),
        ),
    )
)  # fmt: skip


_PLACE = re.compile(
    r"(?:unable|failed) to allocate ([A-Z]\w*) buffer"
    r"|on device (\d+): cudaMalloc failed|current device: (\d+),"
)


def place_in(line: str) -> str | None:
    """The buffer (`CUDA0`, `Vulkan_Host`) or the number of the device (`0`) that an allocation failed on."""
    match = _PLACE.search(line)
    return None if match is None else match[1] or match[2] or match[3]


def explain_line(line: str) -> Explained | None:
    """The meaning of a line that announces a failure; None for any other line."""
    return next((explained for pattern, explained in _TEXTS if pattern.search(line)), None)


def _signal(name: str, number: int) -> int:
    """A signal's number; Windows lacks some, and ends processes with other codes anyway."""
    return int(getattr(signal, name, number))


_CODES: dict[int, Explained] = {
    1: Explained("It refused its settings or could not load the model.", "Its last lines say more.", 0),
    125: Explained("Its daemon was gone before it started.", "Start again.", 3),
    126: Explained(
        "The engine's program can't be started here.", "`appliance engines list` shows which engines do.", 3
    ),
    -signal.SIGABRT: Explained(
        "It gave up by itself (abort), often after a failed GPU call.", _LESS_MEMORY, 1
    ),
    -_signal("SIGKILL", 9): Explained(
        "It was killed, most often by the system because memory ran out.",
        "Close other programs, or choose a smaller model, --ctx or quant.",
        1,
        HOST,
    ),
    -signal.SIGSEGV: Explained(
        "It crashed (segmentation fault); a build for another processor does that.", _OTHER_BUILD, 1
    ),
    -signal.SIGILL: Explained(
        "This build needs processor instructions that this machine lacks.", _OTHER_BUILD, 6
    ),
    -_signal("SIGBUS", 7): Explained(
        "It read a file that became shorter, or memory that is gone.",
        "Run `appliance models verify` on the model.",
        1,
    ),
}  # fmt: skip
_CODES_SERVING: dict[int, Explained] = {
    -signal.SIGSEGV: Explained(
        "It crashed (segmentation fault) although it had worked: a fault of the engine or of the driver.",
        f"{AGAIN} When it happens often: `appliance doctor`, or another engine (`appliance engines list`).",
        1,
    ),
}
"""Where the code says something else of an engine that was ready than of one that was not."""
BY_ANOTHER = Explained("It was killed by another program or by a person.", AGAIN, 1)
"""SIGKILL of an engine that was ready, while the system has ended nothing for lack of memory."""
_SIGNALS_OF_MEMORY = (-signal.SIGABRT, -signal.SIGSEGV, -_signal("SIGBUS", 7))
_TIGHT = Explained(
    "It crashed without a word, most likely for lack of memory: a larger plan ran out of it here.",
    _LESS_MEMORY,
    1,
    UNKNOWN_PLACE,
)
_UNKNOWN = Explained("It ended by itself.", "Its last lines say more.", 0)
_WINDOWS_CODES = {
    0xC0000409: -signal.SIGABRT,
    0xC0000374: -signal.SIGABRT,
    0xC0000005: -signal.SIGSEGV,
    0xC000001D: -signal.SIGILL,
}


def exit_text(code: int | None) -> str:
    """`exit code 1`, or `signal 9 (SIGKILL)`."""
    if code is None:
        return "no exit code"
    if code < 0:
        try:
            return f"signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


def explain(code: int | None, said: Explained | None, *, serving: bool = False) -> Explained:
    """Cause and hint from the exit code and the log; the more exact of the two. `serving`: it was ready."""
    codes = _CODES | _CODES_SERVING if serving else _CODES
    number = _number(code)
    by_code = _UNKNOWN if number is None else codes.get(number, _UNKNOWN)
    return said if said is not None and said.weight >= by_code.weight else by_code


def died_of_memory(code: int | None) -> Explained | None:
    """The meaning of a death by signal soon after a larger plan ran out of memory; None for other ends."""
    return _TIGHT if _number(code) in _SIGNALS_OF_MEMORY else None


def _number(code: int | None) -> int | None:
    """Negative for a signal, also where a shell or Windows tells it in other ways."""
    return code if code is None or code < 128 else _WINDOWS_CODES.get(code, 128 - code)


def when_given_up(hint: str | None, model_id: str) -> str:
    """The hint once the engine stays down: nothing happens by itself any more, and how to try again."""
    kept = (hint or "").removeprefix(AGAIN).strip()
    return f"{kept} `appliance models restart {model_id}` tries again.".strip()


def was_killed(code: int | None) -> bool:
    """It ended by SIGKILL: what the system does when RAM runs out, and a person may do, too."""
    return code in (-_signal("SIGKILL", 9), 128 + _signal("SIGKILL", 9))
