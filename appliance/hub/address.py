"""Addresses and the token of the Hub, or of a mirror of it. Read from the environment at every call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

from appliance.errors import UsageError
from appliance.settings.addresses import problem_of
from appliance.text import clean_line

_DEFAULT = "https://huggingface.co"
_OFF = ("", "0", "false", "no", "off")


def endpoint(env: Mapping[str, str]) -> str:
    """The base URL: `HF_ENDPOINT`, else the public Hub. Raises UsageError for a value that is no address."""
    base = (env.get("HF_ENDPOINT") or _DEFAULT).strip()
    if problem := problem_of(base):
        raise UsageError(
            "HF_ENDPOINT is not the address of a Hub.",
            cause=problem,
            hint="Unset it for the public Hub, or set it to http(s)://HOST[:PORT][/PATH].",
        )
    return base.rstrip("/")


def is_on(env: Mapping[str, str], name: str) -> bool:
    """Whether a switch of the Hub's own tools is set."""
    return env.get(name, "").lower() not in _OFF


def mirror_of(base: str) -> str | None:
    """Host and port of a base URL that is not the public Hub's; None for the public Hub."""
    return None if base.lower() == _DEFAULT else urlsplit(base).netloc.lower()


def file_url(base: str, repo: str, revision: str, path: str) -> str:
    """Where one file of one commit is."""
    return f"{base}/{quote(repo)}/resolve/{revision}/{quote(path)}"


def token(env: Mapping[str, str]) -> str | None:
    """The user's token: `HF_TOKEN`, else the file that the Hub's own tools keep. Blocks for a small read.

    Raises UsageError for one that can't be a token: it would break the request that it is sent in.
    """
    if is_on(env, "HF_HUB_DISABLE_IMPLICIT_TOKEN") and not env.get("HF_TOKEN"):
        return None
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if found := env.get(name, "").strip():
            return _sound(found, name)
    home = Path(
        env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    ).expanduser()
    file = Path(env.get("HF_TOKEN_PATH") or home / "token").expanduser()
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return _sound(found, str(file)) if found else None


def _sound(token: str, where: str) -> str:
    """The token, when it is of printable ASCII without spaces. The error never shows it."""
    if token.isascii() and token.isprintable() and " " not in token:
        return token
    raise UsageError(
        f"The token in {clean_line(where, 200)} is malformed.",
        cause="It holds a space, a line break, or a character that no token has.",
        hint="Copy it again as one line, or remove it: public repositories need none.",
    )
