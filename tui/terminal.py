"""What is settled before and around a full-screen program: environment, ASCII, where log records go."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance.paths import Paths


def prepare(environ: MutableMapping[str, str]) -> None:
    """Set what Textual reads while it is imported. Over SSH: no animations and at most 15 frames a second."""
    if environ.get("SSH_CONNECTION"):
        environ.setdefault("TEXTUAL_ANIMATIONS", "none")
        environ.setdefault("TEXTUAL_FPS", "15")


def prefers_ascii(environ: Mapping[str, str]) -> bool:
    """True where the terminal or the locale can't be trusted with more than ASCII."""
    if environ.get("TERM") == "linux":
        return True
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    return bool(locale) and not any(mark in locale.lower() for mark in ("utf-8", "utf8"))


@contextmanager
def file_logging(paths: Paths) -> Iterator[None]:
    """Send log records to `ui.log` meanwhile: a handler on stderr would write over the screen."""
    root = logging.getLogger()
    before = root.handlers[:]
    handler: logging.Handler
    try:
        paths.logs.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(paths.logs / "ui.log", encoding="utf-8")
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.handlers[:] = [handler]
    try:
        yield
    finally:
        root.handlers[:] = before
        handler.close()
