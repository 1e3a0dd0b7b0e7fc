"""The headers of files that are not here: the first bytes of each, from the first place that has it.

What was read is kept under the hash that the pin states, so a second look needs no network. Nothing proves it
before the download.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit, urlunsplit

from appliance import hub, web
from appliance.catalog import File, HfSource, Role, UrlSource
from appliance.errors import ApplianceError, DownloadError, Gated, GgufError, NotVerified
from appliance.gguf import Refused, Slim, read_slim, shards_of
from appliance.operations.plans.header_cache import HeaderCache
from appliance.operations.plans.subject import Part
from appliance.store.places import Place, places_of
from appliance.text import clean_line

_AT_ONCE = 4
"""Files of one split set that are asked for at the same time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file that is not here. None: nobody states it."""

    name: str
    role: Role
    size: int | None
    sha256: str | None
    places: tuple[Place, ...]


def pinned(
    source: HfSource | UrlSource, files: Sequence[File], env: Mapping[str, str], mirrors: Sequence[str]
) -> list[Wanted]:
    """The files of a variant with their places. Reads the token: blocks for a moment."""
    return [Wanted(f.base_name, f.role, f.size, f.sha256, places_of(source, f, env, mirrors)) for f in files]


def on_hub(repo: hub.Repo, files: Sequence[hub.RepoFile], env: Mapping[str, str]) -> list[Wanted]:
    """Files of a repository as it states them. Reads the token: blocks for a moment."""
    base, token = hub.endpoint(env), hub.token(env)
    found = []
    for file in files:
        place = Place(
            hub.file_url(base, repo.repo, repo.commit, file.path), token, repo.commit, f"{base}/{repo.repo}"
        )
        found.append(Wanted(PurePosixPath(file.path).name, "model", file.size, file.sha256, (place,)))
    return found


def at_address(url: str) -> list[Wanted]:
    """A file of a web server; of a split set, all parts in its folder."""
    where = urlsplit(url)
    folder, _, last = where.path.rpartition("/")
    shard = shards_of(unquote(last))
    if shard is None:
        return [Wanted(unquote(last), "model", None, None, (Place(url),))]
    before, _, after = last.rpartition(f"-{shard.number:05}-of-")
    found = []
    for number, name in enumerate(shard.all, 1):
        path = f"{folder}/{before}-{number:05}-of-{after}"
        found.append(Wanted(name, "model", None, None, (Place(urlunsplit(where._replace(path=path))),)))
    return found


async def fetched(wanted: Sequence[Wanted], cache: HeaderCache | None, env: Mapping[str, str]) -> list[Part]:
    """Their headers, in order, from the cache or from a place.

    A cancel returns at once. Raises Gated, DownloadError, GgufError, or NotVerified for a file whose size is
    not that of its pin.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(file: Wanted) -> Part:
        async with gate:
            return Part(file.name, file.role, await hub.aside(_read, file, cache, env))

    tasks = [asyncio.ensure_future(one(file)) for file in wanted]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _read(file: Wanted, cache: HeaderCache | None, env: Mapping[str, str]) -> Slim:
    if cache is None or file.sha256 is None:
        return _from_places(file, env)
    slim = cache.get(file.sha256, proven=False)
    if slim is None:
        slim = _from_places(file, env)
        cache.put(file.sha256, slim, proven=False)
    return slim


def _from_places(file: Wanted, env: Mapping[str, str]) -> Slim:
    """From the first place that has it; terms that wait to be accepted say more than a mirror's failure."""
    errors: list[ApplianceError] = []
    for place in file.places:
        try:
            return _at(place, file, env)
        except (DownloadError, GgufError, NotVerified, Gated) as error:
            errors.append(error)
    raise next((error for error in errors if isinstance(error, Gated)), errors[-1])


def _at(place: Place, file: Wanted, env: Mapping[str, str]) -> Slim:
    try:
        slim = read_slim(place.url, token=place.token, env=env)
    except Refused as error:
        if error.said == "GatedRepo" and place.page:
            raise Gated(
                f"{_repo(place.page)} is gated: its terms have to be accepted first.",
                cause="The token's account has not been let in." if place.token else "No token is set.",
                hint=f"Accept the terms at {place.page}, then set HF_TOKEN to a token of that account.",
            ) from error
        raise
    if None not in (file.size, slim.n_file) and file.size != slim.n_file:
        raise NotVerified(
            f"{place.host} has another {clean_line(file.name, 120)} than was stated.",
            cause=f"It offers {slim.n_file} bytes, stated are {file.size}.",
            hint=f"The file at {web.shown(place.url)} was replaced: try again later, or another mirror.",
        )
    return slim


def _repo(page: str) -> str:
    return "/".join(urlsplit(page).path.strip("/").split("/")[-2:])
