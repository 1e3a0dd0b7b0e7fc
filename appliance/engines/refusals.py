"""What an engine says when it won't take a model or its settings, read from its dry run.

    0.00.009.366 E llama_model_load: error loading model: unknown model architecture: 'frobnik'
    0.00.023.135 E llama_init_from_model: K cache type q8_0 with block size 32 does not divide n_embd_head_k
    /src/llama-model.cpp:1390: GGML_ASSERT(n_expert_used_max <= hparams.n_expert) failed

What depends on the moment or on the stub is no refusal: memory that ran out, a device that is lost, a file
that can't be opened, and checks of the vocabulary, which stubs leave out.
"""

from __future__ import annotations

import re

from appliance.engines.failures import explain_line
from appliance.errors import EngineFailed
from appliance.text import clean_line

_LONGEST = 200
_STAMP = re.compile(r"\d+\.\d\d\.\d\d\d\.\d\d\d ([A-Z]) ")
_SENTENCES = tuple(
    re.compile(pattern)
    for pattern in (
        r"error loading model: (?:error loading model \w+: )?(.+)",
        r"llama_(?:init_from_model|new_context_with_model): (.+)",
        r"^\S+:\d+: (GGML_ASSERT\(.+\) failed)",
    )
)
_PASSING = re.compile(
    r"vocab\S*:\d+: |GGML_ASSERT.*vocab|failed to open|mmap|read error|No such file"
    r"|[Dd]evice ?[Ll]ost|bad_alloc|CUDA error|failed to initialize \S+ backend"
)


class Refused(EngineFailed):
    """The engine does not take this model, or these settings. `message` is its own sentence, cleaned."""


class Refusal:
    """Reads one process's lines in order."""

    def __init__(self) -> None:
        self._said: str | None = None
        self._out_of_memory = False

    @property
    def sentence(self) -> str | None:
        """The first one that refuses; None when nothing does, or memory ran out."""
        return None if self._out_of_memory else self._said

    def feed(self, line: str) -> None:
        """Take one cleaned line."""
        stamp = _STAMP.match(line)
        if stamp is not None and stamp[1] != "E":
            return  # it repeats what the header says, in the words of whoever made the file
        explained = explain_line(line)
        if explained is not None and explained.memory is not None:
            self._out_of_memory = True
        elif self._said is None and not _PASSING.search(line):
            found = next((match for one in _SENTENCES if (match := one.search(line))), None)
            self._said = None if found is None else clean_line(found[1], _LONGEST).strip()
