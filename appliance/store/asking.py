"""One request for a piece of a file, and what its answer means."""

from __future__ import annotations

from appliance.errors import DownloadError
from appliance.store import firstbytes, responses
from appliance.store.partfile import PartFile
from appliance.store.places import Place
from appliance.store.responses import Asked, Body, Retry
from appliance.web import Answer, Broken, Client, origin, shown

_GONE = frozenset({401, 403, 404, 410})


class Route:
    """The way to one place: its address, and where that led.

    The latter is kept in memory only: it may be signed, and it may expire. Several threads use a route; the
    worst that a race does is one more redirect.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.direct: str | None = None
        self.refused = False
        """An address that was given a moment ago was refused."""


def ask(client: Client, route: Route, part: PartFile, start: int, stop: int | None) -> tuple[Answer, Body]:
    """Ask for the bytes from `start` to before `stop`; None = for the whole file.

    Raises Retry, Broken, DownloadError or NotVerified. An answer that is returned belongs to the caller, one
    that is not was ended.
    """
    place, file, direct = route.place, part.file, route.direct
    headers: dict[str, str] = {}
    if stop is not None:
        headers["Range"] = f"bytes={start}-{stop - 1}"
        etag = None if place.revision else part.etag(shown(place.url))
        if etag:
            headers["If-Range"] = etag
    token = place.token if direct is None or origin(direct) == origin(place.url) else None
    try:
        answer = client.get(direct or place.url, headers, token=token)
    except Broken:
        route.direct = None
        raise
    try:
        asked = Asked(file.base_name, file.size, file.sha256, start, stop, place.host, place.page)
        return answer, _judged(answer, route, asked)
    except BaseException:
        answer.finish()
        raise


def _judged(answer: Answer, route: Route, asked: Asked) -> Body:
    direct, route.direct = route.direct, None
    if direct is not None and answer.status in _GONE:
        raise Retry(f"the address that {asked.host} gave no longer works")
    responses.check_pin(answer.stated, asked, route.place.revision)
    redirected = answer.redirected or direct is not None
    try:
        body = responses.judge(answer.status, answer.headers, asked, redirected=redirected)
    except Retry as retry:
        if retry.expired and route.refused:
            raise DownloadError(
                f"{asked.host} refused {asked.name} with status 403.",
                cause="A fresh address was refused, too.",
                hint="Check the token and the terms of the model.",
            ) from None
        route.refused = retry.expired
        raise
    route.refused = False
    route.direct = answer.url if redirected else None
    return body


def first_bytes(answer: Answer, part: PartFile, host: str) -> bytes:
    """The first bytes of the file, judged before anything on disk is touched.

    Empty when none came. Raises Broken, DownloadError or NotVerified.
    """
    first = b""
    while len(first) < firstbytes.WANTED:
        piece = answer.read1(firstbytes.WANTED - len(first))
        if not piece:
            break
        first += piece
        if len(first) >= firstbytes.NEEDED and first.startswith(firstbytes.MAGIC):
            break
    problem = firstbytes.problem(first, part.file.base_name, host) if first else None
    if problem is not None:
        raise problem
    return first
