"""The HTTP client that `huggingface_hub` uses on our behalf.

The library keeps one client for the whole process, retries with sleeps that a server may stretch at will,
and reads its settings at import. Here each call brings a client of its own: the system trust store, the
proxies of the environment as they are now, a deadline for everything together, a limit on what an answer may
hold, and no retry. The library's client only hands a request to the one of its call.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import httpx2
import huggingface_hub
import truststore
from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

MAX_BYTES = 64 << 20
"""Of one answer. A repository with thousands of files is described in a few MiB."""
_CONNECT_S = 10.0
_REDIRECTS = 5


class Broken(Exception):
    """No whole answer came; `host` did not deliver, and `why` says how (for people, without secrets)."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(why)
        self.host = host
        self.why = why


class Refused(Exception):
    """An answer that must not be used: too large, or moved to where we do not follow."""


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), port


class _Whole(httpx2.SyncByteStream):
    """A body that must end before the deadline and within the limit."""

    def __init__(self, body: httpx2.SyncByteStream, until: float, host: str) -> None:
        self._body = body
        self._until = until
        self._host = host

    def __iter__(self) -> Iterator[bytes]:
        n_bytes = 0
        for chunk in self._body:
            n_bytes += len(chunk)
            if n_bytes > MAX_BYTES:
                raise Refused(f"{self._host} sent more than {MAX_BYTES >> 20} MiB.")
            if time.monotonic() > self._until:
                raise Broken(self._host, "it did not finish its answer in time")
            yield chunk

    def close(self) -> None:
        self._body.close()


class _Own(httpx2.Client):
    """The client of one call."""

    def __init__(self, base: str, seconds: float) -> None:
        self._base = origin(base)
        self._until = time.monotonic() + seconds
        super().__init__(
            verify=truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            follow_redirects=True,
            max_redirects=_REDIRECTS,
            event_hooks={"request": [self._before], "response": [self._after]},
        )

    def send(self, request: httpx2.Request, **kwargs: Any) -> httpx2.Response:
        try:
            return super().send(request, **kwargs)
        except httpx2.TooManyRedirects:
            raise Refused(f"{request.url.host} redirects in circles.") from None
        except httpx2.TransportError as error:
            raise Broken(request.url.host, _why(error)) from error

    def _before(self, request: httpx2.Request) -> None:
        """Before each hop: the deadline, no step from https to http, the token only to the Hub itself."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise Broken(request.url.host, "it did not answer in time")
        request.extensions = {
            **request.extensions,
            "timeout": {"connect": min(left, _CONNECT_S), "read": left, "write": left, "pool": left},
        }
        there = origin(str(request.url))
        if self._base[0] == "https" and there[0] != "https":
            raise Refused(f"{self._base[1]} leads from https to http; that is not followed.")
        if there != self._base:
            request.headers.pop("Authorization", None)

    def _after(self, response: httpx2.Response) -> None:
        """Errors are raised here, before the library would wait and try again."""
        body = response.stream
        assert isinstance(body, httpx2.SyncByteStream)
        response.stream = _Whole(body, self._until, response.request.url.host)
        if response.status_code >= 400:
            response.read()
            hf_raise_for_status(response)


class _Switch(httpx2.Client):
    """What the library holds: passes each request on to the client of the call that makes it."""

    def send(self, request: httpx2.Request, **kwargs: Any) -> httpx2.Response:
        own = _CALL.get()
        return super().send(request, **kwargs) if own is None else own.send(request, **kwargs)


_CALL: ContextVar[_Own | None] = ContextVar("appliance_hub_call", default=None)
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it prints a server's warnings as they came
huggingface_hub.set_client_factory(lambda: _Switch(follow_redirects=True, timeout=_CONNECT_S))


@contextlib.contextmanager
def calling(base: str, token: str | None, seconds: float) -> Iterator[huggingface_hub.HfApi]:
    """The library at `base` for the time of the body, which has to end within `seconds`.

    Raises Broken or Refused besides what the library raises.
    """
    try:
        client = _Own(base, seconds)
    except (ValueError, ImportError) as error:  # a proxy of a kind that is not supported
        raise Refused(f"The proxy of the environment can't be used: {error}") from None
    with client:
        mark = _CALL.set(client)
        try:
            yield huggingface_hub.HfApi(endpoint=base, token=token or False, library_name="llama-appliance")
        finally:
            _CALL.reset(mark)


def _why(error: BaseException) -> str:
    """How it broke, for people. The library's own text may hold addresses, so only its kind is used."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    for link in chain:
        if isinstance(link, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted on this computer ({link.verify_message})"
    if isinstance(error, httpx2.ProxyError):
        return "the proxy refused the connection"
    if isinstance(error, httpx2.TimeoutException):
        return "it did not answer in time"
    for link in chain:
        if isinstance(link, OSError) and type(link).__name__ == "gaierror":
            return "its name can't be resolved"
        if isinstance(link, ConnectionRefusedError):
            return "it refused the connection"
        if isinstance(link, ssl.SSLError):
            return "no encrypted connection could be made"
    return "the connection broke"
