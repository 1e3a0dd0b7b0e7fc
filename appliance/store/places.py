"""Where a file is on the network: the places to try, in order, and who is given the token.

Pins decide what is accepted, so a place need not be trusted to be tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from appliance import hub
from appliance.catalog import File, HfSource, UrlSource


@dataclass(frozen=True, slots=True)
class Place:
    """One address of a file."""

    url: str
    token: str | None = None
    revision: str | None = None
    """The pinned commit. The URL holds it, so that a range continues the same file without If-Range."""
    page: str | None = None
    """Where the terms of a gated model are accepted."""

    @property
    def host(self) -> str:
        """For people."""
        try:
            return urlsplit(self.url).hostname or "the server"
        except ValueError:
            return "the server"


def places_of(
    source: HfSource | UrlSource, file: File, env: Mapping[str, str], mirrors: Sequence[str] = ()
) -> tuple[Place, ...]:
    """The places of `file`, best first. Reads the token: blocks for a moment.

    For the Hub: `HF_ENDPOINT` when it is set, then `mirrors` (base URLs with the Hub's paths), and the public
    Hub last unless `HF_ENDPOINT` names another: who sets it means it. The token goes to the endpoint only,
    never to a mirror of the list.
    """
    if isinstance(source, UrlSource):
        url = source.url
        return (Place(url + file.name if url.endswith("/") else url),)
    home = hub.endpoint(env)
    listed = [mirror.rstrip("/") for mirror in mirrors]
    bases = [home, *listed] if env.get("HF_ENDPOINT") else [*listed, home]
    return tuple(
        Place(
            hub.file_url(base, source.repo, source.revision, file.name),
            hub.token(env) if base == home else None,
            source.revision,
            f"{base}/{source.repo}",
        )
        for base in dict.fromkeys(bases)
    )
