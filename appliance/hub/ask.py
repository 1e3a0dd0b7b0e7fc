"""The questions: what a repository holds at one commit, and which repositories there are.

These block: call them in a thread, or through `aside`. Each has a deadline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from appliance.errors import HubOffline, UsageError
from appliance.hub import names
from appliance.hub.address import endpoint, is_on, mirror_of, token
from appliance.hub.failures import Asked, not_a_hub, translated
from appliance.hub.quants import RepoFile, is_gguf
from appliance.text import clean_line

if TYPE_CHECKING:
    from huggingface_hub import HfApi

DEADLINE_S = 30.0
"""For one question with everything that it takes."""
_SEARCH_FIELDS: Sequence[Any] = ("downloads", "likes", "gated", "tags", "lastModified")


@dataclass(frozen=True, slots=True)
class Repo:
    """A repository at one commit. Texts are cleaned; None = not stated."""

    repo: str
    commit: str
    """40 hex digits."""
    page: str
    files: tuple[RepoFile, ...]
    """Its GGUF files."""
    license: str | None
    gated: bool
    downloads: int | None
    likes: int | None
    params: int | None
    arch: str | None
    context: int | None
    mirror: str | None = None
    """HOST[:PORT] that `HF_ENDPOINT` names, which stated all this; None = the public Hub did."""

    @property
    def stated_by(self) -> str:
        """Who stated all this, for people."""
        return "the Hub" if self.mirror is None else f"{self.mirror} (HF_ENDPOINT)"


@dataclass(frozen=True, slots=True)
class Found:
    """A repository that a search named."""

    repo: str
    page: str
    downloads: int | None
    likes: int | None
    gated: bool
    license: str | None
    updated: str | None
    """Date, `2026-10-31`."""


def look(
    repo: str,
    revision: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    seconds: float = DEADLINE_S,
) -> Repo:
    """What `repo` holds at `revision` (None = its main branch), which is resolved to a commit.

    Raises UsageError for a name, an `HF_ENDPOINT` or a token that can't be one, and the kinds of HubError.
    """
    if not names.is_repo(repo):
        raise UsageError(f"{clean_line(repo, 200)!r} is not OWNER/NAME of a repository.")
    with _asking(env, seconds, repo, revision) as (api, asked):
        info = api.model_info(repo, revision=revision, files_metadata=True)
        if not names.is_commit(info.sha):
            raise not_a_hub(asked, "It names no commit of 40 hex digits.")
        commit = str(info.sha)
        files = [_file_of(sibling) for sibling in info.siblings or () if is_gguf(str(sibling.rfilename))]
        if any(not file.pinnable for file in files):
            files = _completed(api, repo, commit, files)
        gguf = info.gguf if isinstance(info.gguf, dict) else {}
        return Repo(
            repo=repo, commit=commit, page=asked.page, files=tuple(files),
            license=_license(info.tags, info.card_data), gated=bool(info.gated),
            downloads=_count(info.downloads), likes=_count(info.likes), params=_count(gguf.get("total")),
            arch=_text(gguf.get("architecture")), context=_count(gguf.get("context_length")),
            mirror=mirror_of(asked.base),
        )  # fmt: skip


def search(
    text: str, *, limit: int = 20, env: Mapping[str, str] | None = None, seconds: float = DEADLINE_S
) -> tuple[Found, ...]:
    """Repositories with GGUF files whose name holds `text`, the most fetched first.

    A row that is not of the Hub's form is left out. Raises HubError, also when all rows are like that, and
    UsageError for an `HF_ENDPOINT` or a token that can't be one.
    """
    with _asking(env, seconds) as (api, asked):
        rows = _rows(api, text, limit)
        found = [repo for row in rows if (repo := _found(row, asked.base)) is not None]
        if rows and not found:
            raise not_a_hub(asked, "Not one of its rows has the form of the Hub's.")
        return tuple(found)


def _rows(api: HfApi, text: str, limit: int) -> list[Any]:
    """What the search answers, unread: the library's own reader ends at the first row that is broken."""
    from huggingface_hub.utils import build_hf_headers, paginate  # type: ignore[attr-defined]

    headers = build_hf_headers(token=api.token, library_name=api.library_name)
    params = {
        "filter": ["gguf"], "search": text, "sort": "downloads", "limit": limit,
        "expand": list(_SEARCH_FIELDS),
    }  # fmt: skip
    return list(itertools.islice(paginate(f"{api.endpoint}/api/models", params, headers), limit))


def _found(row: Any, base: str) -> Found | None:
    """One row of a search; None for one that is not of the Hub's form."""
    from huggingface_hub import ModelInfo

    try:
        info = ModelInfo(**row)  # type: ignore[no-untyped-call]
        if not names.is_repo(info.id):
            return None
        return Found(
            repo=info.id, page=f"{base}/{info.id}", downloads=_count(info.downloads),
            likes=_count(info.likes), gated=bool(info.gated), license=_license(info.tags, info.card_data),
            updated=_date(info.last_modified),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@contextlib.contextmanager
def _asking(
    env: Mapping[str, str] | None, seconds: float, repo: str | None = None, revision: str | None = None
) -> Iterator[tuple[HfApi, Asked]]:
    """The library for one question; what it raises becomes an error of ours."""
    env = os.environ if env is None else env
    if is_on(env, "HF_HUB_OFFLINE"):
        raise HubOffline(
            "The Hub was not asked: HF_HUB_OFFLINE is set.",
            hint="Unset it to look there. The catalog and the models on this disk need no network.",
        )
    base, secret = endpoint(env), token(env)  # before the library, which reads them at its import
    from appliance.hub.client import calling

    asked = Asked(base, repo, revision, token=secret is not None)
    try:
        with calling(base, secret, seconds) as api:
            yield api, asked
    except Exception as error:
        ours = translated(error, asked)
        if ours is None or ours is error:
            raise
        raise ours from error


def _completed(api: HfApi, repo: str, commit: str, files: list[RepoFile]) -> list[RepoFile]:
    """Files that the first answer left without size or hash, asked for by name (some mirrors need this)."""
    wanted = [file.path for file in files if not file.pinnable]
    stated = {info.path: info for info in api.get_paths_info(repo, wanted, revision=commit)}
    return [
        file
        if file.pinnable or file.path not in stated
        else dataclasses.replace(_stated(stated[file.path], file.path), path=file.path)
        for file in files
    ]


def _file_of(sibling: Any) -> RepoFile:
    return _stated(sibling, str(sibling.rfilename))


def _stated(info: Any, path: str) -> RepoFile:
    """Size and hash as stated; a hash that is none (a pointer's, a git object's) is not stated."""
    lfs = getattr(info, "lfs", None)
    sha256 = str(getattr(lfs, "sha256", "") or "").lower()
    size = _count(getattr(lfs, "size", None)) or _count(getattr(info, "size", None))
    known = len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")
    return RepoFile(path, size or None, sha256 if known else None)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: object) -> str | None:
    return (clean_line(value, 80) or None) if isinstance(value, str) else None


def _date(value: object) -> str | None:
    return value.date().isoformat() if isinstance(value, datetime) else None


def _license(tags: object, card: object) -> str | None:
    """The licence of the card, by its own name where it is none of the usual ones; else that of the tags."""
    stated = getattr(card, "license", None)
    if stated == "other":
        stated = getattr(card, "license_name", None) or stated
    if not isinstance(stated, str) and isinstance(tags, list):
        marked = [tag for tag in tags if isinstance(tag, str) and tag.startswith("license:")]
        stated = marked[0].removeprefix("license:") if marked else None
    return _text(stated)
