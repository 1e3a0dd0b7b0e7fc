"""Keeps what a request says out of the engine's log.

llama.cpp quotes the request when it refuses one: the text up to a lone surrogate, the tools it could not
read, the grammar it could not parse. The kind of error stays, what was quoted goes. Measured with
llama-server, xllamacpp and the server of llama-cpp-python. Quotations may have several lines, and other
threads may write between them: so from the first one on, a line that does not begin as llama.cpp begins its
own is left out unless its form is known and has no room for foreign text.
"""

from __future__ import annotations

import re

LEFT_OUT = "[request text left out]"

_OWN_PREFIX = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} ([A-Z]) ")
"""Time and level, as `--log-prefix --log-timestamps` writes them: `0.00.540.076 W srv ...`."""
_QUIET_LEVEL = "I"
"""Nothing of a request is written at it, and a model's chat template is (with words like `messages =`)."""
_CONVERSATION = re.compile(r"(conv_id=)\S.*?(?= \(empty=|$)")
_EXCEPTION = re.compile(r"got exception:")
_QUOTES = re.compile(
    r"(?P<kind>got exception:|\[?json\.exception\.\w+\.\d+\]?|[Pp]arse error|parsing grammar:"
    r"|[Ff]ailed to parse (?:messages|tools|tool calls|input|arguments)|\b(?:messages|tools) ="
    r"|Unexpected (?=\S)|JSON schema (?:error|conversion)|Unable to generate parser"
    r"|Failed to initialize samplers:(?! failed to parse grammar$)|last read:"
    r"|^Exception:|^(?:\w+\.)*RequestValidationError:|^ERROR:\s+Exception in ASGI application)"
)
_HEADINGS = re.compile(
    r"parse: error parsing grammar:|WARNING: JSON schema conversion|Exception:|ERROR:\s+Exception in ASGI"
    r"|(?:fastapi\.exceptions\.)?RequestValidationError:"
)
"""How a line without prefix begins that announces a quotation."""
_BEFORE = re.compile(r"""[^"{}]*""")
_CODE = re.compile(r'got exception: \{"error":\{"code":(\d{3})\b')
_TYPE = re.compile(r'"type":"([a-z_]{1,40})"[^"{}]*\}\}$')
_MESSAGE = re.compile(
    r"Failed to parse (?:messages|tools)|Unable to generate parser for this template|JSON schema error"
    r"|Invalid tool_choice|Unknown reasoning format|json\.exception\.\w+\.\d+"
)
_KNOWN_FORMS = re.compile(
    r"[a-z_]+ = -?[\d.]+(?:, [a-z_]+ = -?[\d.]+)*|failed to parse grammar"
    r"|llama_perf_context_print: [\w :=./(),]*"
    r"|Llama\.generate: \d+ prefix-match hit, remaining \d+ prompt tokens to eval"
    r"|(?:ggml|llama)_\w+: .*|[\w./-]+\.(?:cc?|cpp|cuh?|h|hpp|mm?):\d+: .*|CUDA error: [\w .,()-]*"
    r"|current device: \d+, in function \w+ at \S+|terminate called after throwing an instance of '[\w:]+'"
    r"|terminate called .*without an active exception|(?:xllamacpp|llama-cpp-python|launcher): .*"
    r"|Aborted.*|Segmentation fault.*"
)


class RequestText:
    """The filter of one child's lines, in their order."""

    def __init__(self) -> None:
        self._quoted = False

    def lost(self) -> None:
        """Lines were passed over: what follows may be the rest of a quotation."""
        self._quoted = True

    def without(self, line: str) -> str | None:
        """`line` without what it quotes of a request; None when nothing of it may stay."""
        own = _OWN_PREFIX.match(line)
        if own is not None and own[1] == _QUIET_LEVEL:
            return _CONVERSATION.sub(rf"\1{LEFT_OUT}", line) if "conv_id=" in line else line
        if own is None and self._quoted and not _HEADINGS.match(line):
            return line if _KNOWN_FORMS.fullmatch(line) else None
        found = _QUOTES.search(line)
        if found is None:
            return line
        self._quoted = True
        before = _BEFORE.match(line, 0, found.start())
        return f"{before[0] if before else ''}{_kind(line, found)} {LEFT_OUT}"


def _kind(line: str, found: re.Match[str]) -> str:
    """What kind of error it was: our own words and llama.cpp's, never the request's."""
    if not _EXCEPTION.match(found["kind"]):
        return found["kind"].strip()
    code, kind, message = _CODE.search(line), _TYPE.search(line), _MESSAGE.search(line)
    words = (code and code[1], kind and kind[1], message and message[0])
    return " ".join((found["kind"], *(word for word in words if word)))
