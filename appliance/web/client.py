"""The HTTP client of this program: GET, redirects and tokens by our own rules, connections that are kept."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from appliance.errors import DownloadError
from appliance.web import addresses, exchange, proxies
from appliance.web.addresses import Address, Origin
from appliance.web.answer import Answer
from appliance.web.dial import dial
from appliance.web.proxies import Proxy
from appliance.web.stop import STOPPED, Stop
from appliance.web.trust import Trust
from appliance.web.types import Broken, Patience
from appliance.web.wire import Wire

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_STATED = ("X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size")
_KEPT = 8


class Client:
    """For one thread at a time; only `abort` may be called from others. Blocks, but every wait ends.

    Keeps one connection per origin and proxy alive, as long as answers are read to their end.
    """

    def __init__(self, patience: Patience = Patience(), env: Mapping[str, str] | None = None) -> None:  # noqa: B008
        """`env` stands for the environment in which proxies are looked up."""
        self._patience = patience
        self._env = env
        self._stop = Stop()
        self._trust = Trust()
        self._idle: dict[tuple[Origin, Proxy | None], Wire] = {}
        self._answer: Answer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, url: str, headers: Mapping[str, str] | None = None, *, token: str | None = None) -> Answer:
        """GET with redirects; the answer of the call before ends. `token` goes to the origin of `url` only.

        Raises Broken for what another try may change, DownloadError for what it can't: an address that is
        none, a certificate that is not trusted, a proxy of another kind, redirects in circles or from https
        to http.
        """
        if self._answer is not None:
            self._answer.finish()
        first = here = addresses.parse(url)
        stated: dict[str, str] = {}
        for hop in range(self._patience.redirects + 1):
            answer, location = self._ask(here, headers or {}, token if here.origin == first.origin else None)
            stated |= {name: answer.headers[name] for name in _STATED if name in answer.headers}
            if answer.status not in _REDIRECTS:
                answer.url, answer.redirected, answer.stated = here.url, hop > 0, stated
                return answer
            answer.finish()
            here = addresses.join(here, location, first)
        raise DownloadError(f"{first.host} redirects in circles.", hint="Check the address or the proxy.")

    def abort(self) -> None:
        """From any thread: what this client waits for ends at once with Broken; so does every later get."""
        self._stop.set()

    def close(self) -> None:
        """Close all connections. Idempotent."""
        if self._answer is not None:
            self._answer.give_up()
        for wire in self._idle.values():
            wire.close()
        self._idle.clear()

    def _ask(self, here: Address, headers: Mapping[str, str], token: str | None) -> tuple[Answer, str | None]:
        """One request without redirects: the answer and its raw Location."""
        if self._stop.is_set:
            raise Broken(STOPPED)
        proxy = proxies.proxy_for(here, self._env)
        request = exchange.request_for(here, headers, token, proxy)
        wire, response = self._exchanged(here, proxy, request)

        def over(reusable: bool) -> None:
            self._answer = None
            self._put_back((here.origin, proxy), wire, reusable)

        if response.status == 407 and proxy is not None:
            wire.close()
            raise exchange.refused_by_proxy(proxy, 407) or Broken("the proxy refused")
        location = response.headers.get("Location")
        self._answer = answer = Answer(wire, response, here.host, self._patience.silence_s, over)
        return answer, location

    def _exchanged(
        self, here: Address, proxy: Proxy | None, request: bytes
    ) -> tuple[Wire, http.client.HTTPResponse]:
        """Send and read the head; once more when a kept connection had ended meanwhile."""
        while True:
            wire = self._wire(here, proxy)
            try:
                with wire.within(self._patience.silence_s):
                    wire.ask(request)
                return wire, exchange.answer_of(wire, here.host, self._patience.silence_s)
            except Broken:
                again = wire.ended and wire.reused and not wire.got and not self._stop.is_set
                wire.close()
                if not again:
                    raise
            except BaseException:
                wire.close()
                raise

    def _wire(self, here: Address, proxy: Proxy | None) -> Wire:
        kept = self._idle.pop((here.origin, proxy), None)
        if kept is not None:
            kept.reused = True
            if kept.quiet:
                return kept
            kept.close()
        patience = self._patience
        host, port = (here.host, here.port) if proxy is None else (proxy.host, proxy.port)
        try:
            wire = Wire.over(dial(host, port, patience.connect_s, self._stop), here.host, self._stop)
        except OSError as error:  # of this computer: too many open files
            raise Broken(f"no connection could be made ({error.strerror})") from None
        try:
            if here.scheme == "https":
                if proxy is not None:
                    exchange.tunnel(wire, here, proxy, patience.silence_s)
                wire.secure(self._trust, here.host, patience.connect_s)
        except BaseException:
            wire.close()
            raise
        return wire

    def _put_back(self, key: tuple[Origin, Proxy | None], wire: Wire, reusable: bool) -> None:
        if not reusable or self._stop.is_set:
            wire.close()
            return
        self._idle[key] = wire
        while len(self._idle) > _KEPT:
            self._idle.pop(next(iter(self._idle))).close()
