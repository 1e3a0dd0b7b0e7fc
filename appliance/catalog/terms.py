"""What a licence's id means for use, in one line for people. Pure.

The ids are those of the Hub ("Licenses" in its documentation: the `license` or `license_name` of a model
card, `general.license` of a GGUF header). Only what the publisher's own text says is noted; what is not in
this table was not read.
"""

from __future__ import annotations

import re

NON_COMMERCIAL = "non-commercial"
"""How the note of a licence begins that stands behind the gate."""

_FREE = re.compile(
    r"apache-2\.0|mit|isc|zlib|unlicense|wtfpl|postgresql|ncsa|ecl-2\.0|bsl-1\.0|ms-pl|ofl-1\.1|pddl|odc-by"
    r"|bsd(-[23]-clause(-clear)?)?|cc0-1\.0|cc-by(-sa)?-[234]\.[05]|cdla-(permissive|sharing)-[12]\.0"
    r"|(a|l)?gpl(-[23]\.[01])?|mpl-2\.0|epl-[12]\.0|eupl-1\.[12]|artistic-2\.0|afl-3\.0|osl-3\.0|odbl|etalab-2\.0"
)
"""Commercial use is allowed without conditions on the use itself."""
_LLAMA = (
    "Llama Community License: commercial use is allowed up to 700 million monthly users, "
    "with attribution and an acceptable use policy"
)
_RAIL = "Responsible AI License: commercial use is allowed outside of the uses that it forbids"
_NOTES: tuple[tuple[str, str], ...] = (
    (r"llama-?[234](\.[0-9])?(-.*)?", _LLAMA),
    (
        r"gemma(-.*)?",
        "Gemma Terms of Use: commercial use is allowed within their Prohibited Use Policy",
    ),
    (r".*openrail.*|.*-rail-.*", _RAIL),
    (
        r"qwen-research(-.*)?",
        f"{NON_COMMERCIAL}: the Qwen Research licence allows research and evaluation only",
    ),
    (
        r"(tongyi-)?(qwen|qianwen)(-license.*)?",
        "Qwen licence: commercial use above 100 million monthly users needs a permission of Alibaba Cloud",
    ),
    (
        r"mrl(-.*)?|mnpl(-.*)?|mistral-ai-(research|non-production)-.*",
        f"{NON_COMMERCIAL}: this licence of Mistral AI allows no commercial use",
    ),
    (r"deepseek(-license)?", "DeepSeek licence: commercial use is allowed outside of the uses that it lists"),
    (
        r"falcon.*",
        "Falcon licence of TII: its acceptable use policy applies",
    ),
    (r"exaone(-.*)?", f"{NON_COMMERCIAL}: the EXAONE licence allows research only"),
    (
        r"cc-by-nc(-sa|-nd)?(-[0-9.]+)?",
        f"{NON_COMMERCIAL}: Creative Commons, commercial use is not allowed",
    ),
    (r"cc-by-nd-[0-9.]+", "Creative Commons: changed copies may not be shared"),
    (
        r".*\bnc\b.*|.*non-?commercial.*|.*research.*|.*academic.*|apple-amlr|deepfloyd-if-license",
        f"{NON_COMMERCIAL}: its name says research or non-commercial use; read the licence",
    ),
)


def note_of(license_id: str | None, page: str | None = None) -> str | None:
    """The `license_note` of a model under this licence; None = its use is not limited.

    `page` is where people can read it. What is not known is noted as not checked, which asks nobody.
    """
    plain = re.sub(r"[\s_]+", "-", (license_id or "").strip().lower())
    if _FREE.fullmatch(plain):
        return None
    for pattern, note in _NOTES:
        if re.fullmatch(pattern, plain):
            return note
    where = f"read it at {page}" if page else "ask whoever published the model"
    if not plain or plain in ("unknown", "none"):
        return f"not checked: no licence is stated; {where}"
    return f"not checked: what this licence allows is not known here; {where}"


def is_non_commercial(note: str | None) -> bool:
    """Whether commercial use is not allowed, or in doubt, by a note of this table or of a catalog."""
    return (note or "").lower().startswith((NON_COMMERCIAL, f"treat as {NON_COMMERCIAL}"))
