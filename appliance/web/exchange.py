"""One request and the head of its answer, judged more strictly than http.client does.

An answer whose end can't be told for sure (two lengths, an unknown transfer coding, a length that is no
number) is Broken, so that no byte of one answer is ever taken for one of another.
"""

from __future__ import annotations

import base64
import http.client
import re
from collections.abc import Mapping

import appliance
from appliance.errors import DownloadError
from appliance.web.addresses import Address
from appliance.web.proxies import Proxy
from appliance.web.types import Broken
from appliance.web.wire import Wire

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_LENGTH = re.compile(r"[0-9]{1,18}")
_INTERIM = 16


def request_for(
    address: Address, headers: Mapping[str, str], token: str | None, proxy: Proxy | None
) -> bytes:
    """The bytes of a GET. Raises DownloadError for a header that would break the request apart."""
    sent = {
        "Host": address.authority,
        "Accept-Encoding": "identity",
        "User-Agent": f"llama-appliance/{appliance.__version__}",
        "Accept": "*/*",
    }
    if token:
        sent["Authorization"] = f"Bearer {token}"
    elif address.credentials is not None:
        sent["Authorization"] = _basic(address.credentials)
    target = address.target
    if proxy is not None and address.scheme == "http":
        target = f"http://{address.authority}{target}"
        if proxy.credentials is not None:
            sent["Proxy-Authorization"] = _basic(proxy.credentials)
    return _bytes("GET", target, {**sent, **headers})


def answer_of(wire: Wire, host: str, silence_s: float) -> http.client.HTTPResponse:
    """The head of the next answer; its body is read from the same object. Raises Broken."""
    with wire.within(silence_s):
        for _ in range(_INTERIM):
            response = http.client.HTTPResponse(wire, method="GET")  # type: ignore[arg-type]  # as a socket
            _begin(response, host)
            if response.status >= 200:
                _check_framing(response, host)
                return response
            response.close()
    raise Broken(f"{host} sent an answer that makes no sense")


def tunnel(wire: Wire, address: Address, proxy: Proxy, silence_s: float) -> None:
    """Let `proxy` connect `wire` with an https host. Raises DownloadError when it refuses, Broken."""
    there = f"{address.bracketed}:{address.port}"
    headers = {"Host": there, "User-Agent": f"llama-appliance/{appliance.__version__}"}
    if proxy.credentials is not None:
        headers["Proxy-Authorization"] = _basic(proxy.credentials)
    request = _bytes("CONNECT", there, headers)
    with wire.within(silence_s):
        wire.ask(request)
        response = http.client.HTTPResponse(wire, method="CONNECT")  # type: ignore[arg-type]
        _begin(response, proxy.host)
    if not 200 <= response.status < 300:
        raise refused_by_proxy(proxy, response.status) or Broken(
            f"the proxy {proxy.host} answered {response.status}"
        )
    if not wire.quiet:
        raise Broken(f"the proxy {proxy.host} sent an answer that makes no sense")


def refused_by_proxy(proxy: Proxy, status: int) -> DownloadError | None:
    """The error for a refusal that no other try can change."""
    if status == 407:
        return DownloadError(
            f"The proxy {proxy.host} asks for a user and a password.",
            cause="What HTTPS_PROXY or HTTP_PROXY names was not accepted."
            if proxy.credentials
            else "HTTPS_PROXY or HTTP_PROXY names none.",
            hint="Set it to http://USER:PASSWORD@HOST:PORT (only Basic authentication works).",
        )
    if 400 <= status < 500 and status not in (408, 425, 429):
        return DownloadError(
            f"The proxy {proxy.host} refused the connection with status {status}.",
            hint="Its owner decides which hosts are allowed; NO_PROXY names hosts to ask directly.",
        )
    return None


def _begin(response: http.client.HTTPResponse, host: str) -> None:
    try:
        response.begin()
    except http.client.RemoteDisconnected:
        raise Broken("the connection broke") from None
    except (http.client.HTTPException, ValueError, OSError):
        raise Broken(f"{host} sent an answer that makes no sense") from None


def _check_framing(response: http.client.HTTPResponse, host: str) -> None:
    codings = response.headers.get_all("Transfer-Encoding", [])
    lengths = {value.strip() for value in response.headers.get_all("Content-Length", [])}
    chunked = [coding.strip().lower() for coding in codings] == ["chunked"]
    known = all(_LENGTH.fullmatch(length) for length in lengths) and len(lengths) < 2
    if (codings and not chunked) or (not chunked and not known):
        raise Broken(f"{host} sent an answer that makes no sense")


def _bytes(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise DownloadError(
                "The request can't be sent.",
                cause=f"{_what(name)} holds characters that no HTTP header may carry.",
                hint="Set the token or the password again, without line breaks.",
            )
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _what(name: str) -> str:
    known = {"Authorization": "The token", "Proxy-Authorization": "The proxy's password"}
    return known.get(name, "A header")


def _basic(credentials: str) -> str:
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"
