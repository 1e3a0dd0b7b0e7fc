"""Addresses and the token of the Hub, or of a mirror of it. Read from the environment at every call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

_DEFAULT = "https://huggingface.co"
_OFF = ("", "0", "false", "no", "off")


def endpoint(env: Mapping[str, str]) -> str:
    """The base URL: `HF_ENDPOINT`, else the public Hub."""
    return (env.get("HF_ENDPOINT") or _DEFAULT).rstrip("/")


def file_url(base: str, repo: str, revision: str, path: str) -> str:
    """Where one file of one commit is."""
    return f"{base}/{quote(repo)}/resolve/{revision}/{quote(path)}"


def token(env: Mapping[str, str]) -> str | None:
    """The user's token: `HF_TOKEN`, else the file that the Hub's own tools keep. Blocks for a small read."""
    if env.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() not in _OFF and not env.get("HF_TOKEN"):
        return None
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if found := env.get(name, "").strip():
            return found
    home = Path(
        env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    ).expanduser()
    try:
        found = (
            Path(env.get("HF_TOKEN_PATH") or home / "token").expanduser().read_text(encoding="utf-8").strip()
        )
    except (OSError, UnicodeDecodeError):
        return None
    return found or None
