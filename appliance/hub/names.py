"""`hf:OWNER/REPO[@REV]/FILE` and addresses of the Hub as one value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from appliance.errors import UsageError
from appliance.text import clean_line

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository, perhaps a revision of it, perhaps one of its files."""

    repo: str
    revision: str | None = None
    path: str | None = None


def is_repo(text: str) -> bool:
    """Whether it has the form OWNER/NAME."""
    return _REPO.fullmatch(text) is not None and ".." not in text and "--" not in text and len(text) <= 200


def is_commit(text: str | None) -> bool:
    """Whether it is a full commit: 40 hex digits."""
    return text is not None and _COMMIT.fullmatch(text) is not None


def parse(text: str) -> HubName:
    """`hf:OWNER/REPO[@REV][/FILE]`, also without `hf:`. A `/` in REV is written `%2F`. Raises UsageError."""
    owner, _, rest = text.removeprefix("hf:").partition("/")
    name, _, path = rest.partition("/")
    name, at, revision = name.partition("@")
    repo = f"{owner}/{name}"
    if not is_repo(repo) or (at and not revision):
        raise UsageError(
            f"{clean_line(text, 200)} names no repository of the Hub.",
            hint="The form is hf:OWNER/REPO/FILE, or hf:OWNER/REPO@REVISION/FILE.",
        )
    return HubName(repo, unquote(revision) or None, path.strip("/") or None)


def of_url(url: str, base: str) -> HubName | None:
    """What an address at the Hub `base` means (`.../OWNER/REPO/resolve|blob/REV/FILE`), else None."""
    try:
        parts, hub = urlsplit(url), urlsplit(base)
    except ValueError:
        return None
    if (parts.scheme, parts.netloc.lower()) != (hub.scheme, hub.netloc.lower()):
        return None
    if not parts.path.startswith(f"{hub.path}/"):
        return None
    words = parts.path[len(hub.path) + 1 :].split("/", 4)
    if len(words) < 5 or words[2] not in ("resolve", "blob") or not is_repo("/".join(words[:2])):
        return None
    return HubName("/".join(words[:2]), unquote(words[3]), unquote(words[4]))
