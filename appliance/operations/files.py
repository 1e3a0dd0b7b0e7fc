"""Is a word the path of a file, or a model's name?"""

from __future__ import annotations

import re
from pathlib import Path

from appliance.errors import UsageError
from appliance.text import clean_line

_OTHER_FILE = re.compile(r"/|\\|\.[a-z][a-z0-9]+$", re.IGNORECASE)
"""What a file's name may have and a model's has not: a folder, or an ending. `qwen3.5` has none."""
_FILE_OR_NAME = "Give the path of a .gguf file (it starts with / or ./), or a model's name."


def file_or_name(text: str) -> Path | None:
    """A path when the word is one of a GGUF file, or of any file that is here; None for a model's name.

    Raises UsageError for a word that looks like a path and is not one of a file.
    """
    if not text.strip():
        raise UsageError("No model was named.", hint="`appliance models list` shows what there is.")
    if not (text.lower().endswith(".gguf") or text.startswith(("/", "./", "../", "~"))):
        return _other_file(text)
    try:
        path = Path(text).expanduser()
        exists, is_file, is_folder = path.exists(), path.is_file(), path.is_dir()
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"{clean_line(text, 80)} can't be looked at.",
            cause=clean_line(str(error), 120),
            hint=_FILE_OR_NAME,
        ) from None
    if not exists:
        raise UsageError(f"There is no file {clean_line(text, 200)}.", hint=_FILE_OR_NAME)
    if not is_file:
        what = "is a folder" if is_folder else "is not a file"
        raise UsageError(f"{clean_line(text, 200)} {what}.", hint=_FILE_OR_NAME)
    return path


def _other_file(text: str) -> Path | None:
    """A file under another ending; what reads it says what is wrong with it."""
    try:
        return Path(text) if _OTHER_FILE.search(text) and Path(text).is_file() else None
    except (OSError, ValueError):
        return None  # no name that a file can have
