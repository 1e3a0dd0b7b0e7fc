"""From what the user named to one wheel: a page of an index is asked, a folder is looked through."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

from packaging.tags import Tag

from appliance.engines.builds import index, wheels
from appliance.engines.builds.index import Link, NoIndex, Page
from appliance.engines.builds.variants import INDEX, Wanted
from appliance.engines.builds.wheels import Candidate
from appliance.errors import ApplianceError, DownloadError, EngineError, UsageError
from appliance.web import Broken, Client, origin, shown

PROJECT = "xllamacpp"
_PAGE = 16 << 20
_PIECE = 1 << 18
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)
_NOT_THERE = (401, 403, 404, 410)


@dataclass(frozen=True, slots=True)
class Found:
    """The wheel to install."""

    candidate: Candidate
    variant: str
    """The folder of the index that it comes from, else the backend's word."""
    path: Path | None = None
    """A local file, instead of the link's address."""
    notes: tuple[str, ...] = ()


def find(
    client: Client, source: str | None, wanted: Wanted, *, version: str | None, tags: Sequence[Tag]
) -> Found:
    """Resolve `source` (None: the publisher's index). `version` is that of the installed xllamacpp.

    Blocks. Raises EngineError, DownloadError or UsageError.
    """
    notes: tuple[str, ...] = (wanted.note,) if wanted.note else ()
    if source is None:
        return _of_index(client, INDEX, wanted, version, tags, notes)
    if source.lower().startswith("file:"):
        source = url2pathname(urlsplit(source).path)
    if not _ADDRESS.match(source):
        return _local(Path(source).expanduser(), wanted, version, tags, notes)
    if open_to_all(source):
        notes += ("The source is plain http: whoever is on the way can change the page and the hash on it.",)
    address, fragment = urldefrag(source)
    if index.file_name(address).endswith(".whl"):
        return _wheel(address, fragment, wanted, tags, notes)
    return _of_index(client, address, wanted, version, tags, notes)


def open_to_all(url: str) -> bool:
    """Plain http to anything but this computer and private networks."""
    parts = urlsplit(url)
    if parts.scheme.lower() != "http":
        return False
    host = parts.hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    return not (address.is_loopback or address.is_private)


def require_allowed(url: str, source: str | None) -> None:
    """A file's address may be plain http only on a private network or where the user's own source is.

    Raises EngineError.
    """
    if urlsplit(url).scheme.lower() != "http":
        return
    same = source is not None and _ADDRESS.match(source) is not None and origin(source) == origin(url)
    if same or (source is not None and not _secure(source) and not open_to_all(url)):
        return
    raise EngineError(
        "The index names a file that would come over plain http.",
        cause=f"{shown(url)} is not encrypted.",
        hint="Use an https index, or name the wheel yourself: --source URL#sha256=HASH.",
    )


def _secure(source: str) -> bool:
    return source.lower().startswith("https:")


def _wheel(address: str, fragment: str, wanted: Wanted, tags: Sequence[Tag], notes: tuple[str, ...]) -> Found:
    digest = index.sha256_of(fragment)
    if digest is None:
        raise UsageError(
            "The address of a wheel needs its hash.",
            hint="Write it behind the address: --source URL.whl#sha256=HASH (64 hex digits).",
        )
    chosen = wheels.choose([Link(index.file_name(address), address, digest)], tags)
    return Found(chosen, _variant_in(address, wanted), notes=notes)


def _local(
    path: Path, wanted: Wanted, version: str | None, tags: Sequence[Tag], notes: tuple[str, ...]
) -> Found:
    try:
        files = sorted(path.glob("*.whl")) if path.is_dir() else [path]
        there = bool(files) and files[0].is_file()
    except OSError:
        there = False
    if not there:
        raise UsageError(
            f"{path} is no wheel and holds none.",
            hint="--source takes an index, a project page, a wheel's address, or a local wheel or folder.",
        )
    links = [Link(file.name, file.absolute().as_uri(), None) for file in files]
    chosen = _best(links, version if path.is_dir() else None, tags)  # a file by its name is meant
    notes += ("A local file: its hash is taken as the pin.",)
    return Found(chosen, wanted.backend, Path(url2pathname(urlsplit(chosen.link.url).path)), notes)


def _best(links: Sequence[Link], version: str | None, tags: Sequence[Tag]) -> Candidate:
    """xllamacpp of the installed version where there is any xllamacpp, else the newest of what there is."""
    ours = [link for link in links if (c := wheels.candidate(link)) and index.normal(c.project) == PROJECT]
    if ours:
        return wheels.choose(ours, tags, project=PROJECT, version=version)
    return wheels.choose(links, tags)


def _of_index(
    client: Client,
    root: str,
    wanted: Wanted,
    version: str | None,
    tags: Sequence[Tag],
    notes: tuple[str, ...],
) -> Found:
    """Look where an index may have it: the page itself, its project page, or below each variant."""
    last: ApplianceError | None = None
    for page, variant in _pages(client, root, wanted):
        if page is None or not page.files:
            continue
        try:
            chosen = _best(page.files, version, tags)
        except EngineError as error:
            last = last or error
            continue
        return Found(chosen, variant, notes=notes)
    raise last or DownloadError(
        f"{shown(root)} has no engine wheels for {wanted.backend}.",
        cause=f"Looked at the page itself, {PROJECT}/ and {', '.join(f'{v}/' for v in wanted.variants)}.",
        hint="Check --source: an index, a project page, or a wheel's address with #sha256=.",
    )


def _pages(client: Client, root: str, wanted: Wanted) -> Iterator[tuple[Page | None, str]]:
    """Pages to look at, in order, each with the variant that it stands for; each is asked for in its turn."""
    base = root if root.endswith("/") else f"{root}/"
    if root != INDEX:
        variant = _variant_in(base, wanted)
        top = _page(client, root)
        yield top, variant
        projects = top.projects if top is not None and not top.files else ()
        for name, url in projects:
            wanted_one = index.normal(name) == PROJECT or len(projects) == 1
            if wanted_one and origin(url) == origin(root):
                yield _page(client, url), variant
        yield _page(client, urljoin(base, f"{PROJECT}/")), variant
    for variant in wanted.variants:
        yield _page(client, urljoin(base, f"{variant}/{PROJECT}/")), variant


def _variant_in(address: str, wanted: Wanted) -> str:
    """The variant whose folder stands in the address, else the backend's word."""
    parts = set(urlsplit(address).path.split("/"))
    return next((variant for variant in wanted.variants if variant in parts), wanted.backend)


def _page(client: Client, address: str) -> Page | None:
    """None when there is no such page. Raises DownloadError when the index can't be asked."""
    try:
        answer = client.get(address, {"Accept": index.ACCEPT})
        if answer.status in _NOT_THERE:
            answer.finish()
            return None
        if answer.status != 200:
            answer.finish()
            raise _unreachable(address, f"it answered {answer.status}")
        raw = bytearray()
        while piece := answer.read1(_PIECE):
            raw += piece
            if len(raw) > _PAGE:
                answer.give_up()
                raise _unreachable(address, "its page is too large")
        text = raw.decode("utf-8", errors="replace")
        return index.read(text, answer.url, answer.headers.get("Content-Type") or "")
    except NoIndex as error:
        raise _unreachable(address, f"the page is no simple index: {error}") from None
    except Broken as error:
        raise _unreachable(address, error.why) from None


def _unreachable(address: str, why: str) -> DownloadError:
    return DownloadError(
        f"The package index at {shown(address)} can't be used.",
        cause=f"{why[:1].upper()}{why[1:]}.",
        hint="Check the network and the address. A wheel that you have: --source FILE.",
    )
