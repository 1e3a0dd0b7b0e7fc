"""What an HTTP response means for a file that is being fetched. Pure: status and headers in, verdict out."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.errors import DownloadError, NotVerified

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_RATE_LIMIT = re.compile(r"r=([0-9]{1,9}).*?t=([0-9]{1,9})")
_NUMBER = re.compile(r"[0-9]{1,19}")
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for."""

    name: str
    size: int
    sha256: str
    start: int
    """First byte wanted."""
    stop: int | None
    """The byte after the last one wanted; None = the whole file, without a Range header."""
    host: str
    """Who was asked first, for people."""
    page: str | None = None
    """Where the terms of a gated model are accepted."""


@dataclass(frozen=True, slots=True)
class Body:
    """Which bytes of the file an answer brings."""

    start: int
    stop: int
    """The byte after the last one."""
    whole: bool
    """The server sent the whole file, asked or not."""


class Retry(Exception):
    """Worth another try. `wait_s` is what the server asked for; `whole` = ask without a range next time.

    `expired`: the server gave an address that was refused.
    """

    def __init__(
        self, why: str, *, wait_s: float | None = None, whole: bool = False, expired: bool = False
    ) -> None:
        super().__init__(why)
        self.expired = expired
        self.why = why
        self.wait_s = wait_s
        self.whole = whole


def judge(status: int, headers: Mapping[str, str], asked: Asked, *, redirected: bool = False) -> Body:
    """What the body holds: the wanted range, or its front, or the whole file.

    `redirected`: the answer comes from where a redirect led, so a signed address may have expired. Raises
    Retry or, for what no other try can change, DownloadError.
    """
    if status in (200, 206):
        _check_form(headers, asked)
        return _begins(status, headers, asked)
    if status == 416:
        total = headers.get("Content-Range", "").rpartition("/")[2]
        if _NUMBER.fullmatch(total) and int(total) != asked.size:
            raise _other_size(asked, int(total))
        raise Retry("the server refused the range", whole=True)
    if status in _AGAIN:
        raise Retry(f"the server answered {status}", wait_s=wait_of(headers, time.time()))
    if status == 403 and redirected:
        raise Retry("the address that the server gave has expired", expired=True)
    raise _refused(status, headers, asked)


def check_pin(headers: Mapping[str, str], asked: Asked, revision: str | None) -> None:
    """Compare what a Hub states on the way (commit, size, hash) with the pin. Raises NotVerified."""
    commit = headers.get("X-Repo-Commit")
    stated = headers.get("X-Linked-Etag", "").strip('W/"')
    size = headers.get("X-Linked-Size", "")
    if (
        (revision and commit and commit != revision)
        or (_SHA256.fullmatch(stated) and stated != asked.sha256)
        or (_NUMBER.fullmatch(size) and int(size) != asked.size)
    ):
        raise NotVerified(
            f"{asked.host} offers another {asked.name} than the catalog pins; nothing was fetched.",
            cause=f"It states {size or 'an unknown number of'} bytes with hash {stated or 'unknown'}, "
            f"pinned are {asked.size} bytes with {asked.sha256}.",
            hint="The file was replaced, or the mirror is wrong.",
        )


def wait_of(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a server asks to wait: Retry-After as seconds or a date, or an exhausted rate limit."""
    value = headers.get("Retry-After", "").strip()
    if _NUMBER.fullmatch(value):
        return float(value)
    if value:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
        except ValueError:
            pass
    limit = _RATE_LIMIT.search(headers.get("RateLimit", ""))
    return float(limit[2]) if limit and limit[1] == "0" else None


def strong_etag(headers: Mapping[str, str]) -> str | None:
    """The ETag when it may be used in If-Range."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') and etag.endswith('"') and len(etag) > 2 else None


def _check_form(headers: Mapping[str, str], asked: Asked) -> None:
    encoding = headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", ""):
        raise DownloadError(
            f"{asked.host} sent {asked.name} with the encoding {encoding}.",
            cause="Ranges and sizes of an encoded body can't be trusted.",
            hint="A proxy may be changing the transfer; try without it.",
        )


def _begins(status: int, headers: Mapping[str, str], asked: Asked) -> Body:
    length = headers.get("Content-Length", "")
    if status == 200:
        page = headers.get("Content-Type", "").lower().startswith(("text/html", "application/json"))
        if _NUMBER.fullmatch(length) and int(length) != asked.size and not page:
            raise _other_size(asked, int(length))
        return Body(0, asked.size, whole=True)  # a page is told by its first bytes: a better message
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None or int(match[1]) != asked.start or match[3] != str(asked.size):
        raise Retry("the server sent another range than was asked for", whole=True)
    stop = min(int(match[2]) + 1, asked.size if asked.stop is None else asked.stop)
    if stop <= asked.start:
        raise Retry("the server sent an empty range", whole=True)
    return Body(asked.start, stop, whole=asked.stop is None)


def _other_size(asked: Asked, found: int) -> DownloadError:
    return DownloadError(
        f"{asked.host} has another {asked.name} than the catalog pins.",
        cause=f"It offers {found} bytes, pinned are {asked.size}.",
        hint="Nothing was changed on this disk. The source was replaced, or something answers in its place.",
    )


def _refused(status: int, headers: Mapping[str, str], asked: Asked) -> DownloadError:
    code = headers.get("X-Error-Code", "")
    message = f"{asked.host} refused {asked.name} with status {status}."
    if code == "GatedRepo" and asked.page:
        return DownloadError(
            message,
            cause="The model is gated.",
            hint=f"Accept its terms at {asked.page}, then set HF_TOKEN to a token of that account.",
        )
    if status == 401:
        return DownloadError(
            message,
            cause="A token is missing or not valid; a model that does not exist may answer so, too.",
            hint="Set HF_TOKEN to a valid token.",
        )
    if status in (403, 451):
        return DownloadError(
            message, cause=code or "Access is not allowed.", hint="Check the token and the terms."
        )
    if status in (404, 410):
        return DownloadError(
            message,
            cause="The repository, the revision or the file is not there.",
            hint="Check the entry in the catalog, or take another variant.",
        )
    return DownloadError(message, hint="Try again later.")
