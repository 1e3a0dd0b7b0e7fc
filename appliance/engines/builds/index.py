"""A page of a simple index (PEP 503 as HTML, PEP 691 as JSON): the files and projects that it names. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from appliance.text import clean_line

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, text/html;q=0.4"
MOST_LINKS = 20_000
_SHA256 = re.compile(r"(?:^|&)sha256=([0-9a-fA-F]{64})(?:&|$)")
_MAJOR = "1"


class NoIndex(ValueError):
    """The page is none of a simple index; the text says why."""


@dataclass(frozen=True, slots=True)
class Link:
    """One file of a project."""

    file: str
    url: str
    sha256: str | None
    """None: the index states none, so the file is not taken."""
    size: int | None = None
    requires_python: str | None = None
    yanked: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What a page names."""

    files: tuple[Link, ...]
    """Wheels only."""
    projects: tuple[tuple[str, str], ...]
    """Name and address of each project, on the page of a whole index."""


def read(text: str, url: str, content_type: str) -> Page:
    """The page that `url` answered. Raises NoIndex."""
    if "json" in content_type or text.lstrip()[:1] == "{":
        return _from_json(text, url)
    return _from_html(text, url)


def sha256_of(fragment: str) -> str | None:
    """The hash in the part of an address after `#`."""
    found = _SHA256.search(fragment)
    return found[1].lower() if found else None


def file_name(url: str) -> str:
    """The last part of an address's path."""
    return clean_line(unquote(urlsplit(url).path.rpartition("/")[2]), 250)


def normal(name: str) -> str:
    """A project's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _from_json(text: str, url: str) -> Page:
    try:
        document = json.loads(text)
        version = str(document["meta"]["api-version"])
        if version.partition(".")[0] != _MAJOR:
            raise NoIndex(f"its version {clean_line(version, 20)} is not known")
        files = [_json_file(one, url) for one in document.get("files", ())[:MOST_LINKS]]
        names = [str(one["name"]) for one in document.get("projects", ())[:MOST_LINKS]]
    except NoIndex:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NoIndex("it is not the JSON of a simple index") from None
    projects = tuple((clean_line(name, 200), urljoin(_folder(url), f"{normal(name)}/")) for name in names)
    return Page(tuple(one for one in files if _is_wheel(one)), projects)


def _json_file(one: dict[str, Any], url: str) -> Link:
    digest = (one.get("hashes") or {}).get("sha256")
    size = one.get("size")
    return Link(
        file=clean_line(str(one["filename"]), 250),
        url=urldefrag(urljoin(url, str(one["url"])))[0],
        sha256=sha256_of(f"sha256={digest}") if digest is not None else None,
        size=size if isinstance(size, int) and size >= 0 else None,
        requires_python=one.get("requires-python"),
        yanked=bool(one.get("yanked")),
    )


def _from_html(text: str, url: str) -> Page:
    parser = _Anchors()
    parser.feed(text)
    parser.close()
    base = urljoin(url, parser.base) if parser.base else url
    found = [(urldefrag(urljoin(base, attributes["href"])), attributes) for attributes in parser.found]
    files = tuple(
        Link(
            file=file_name(address),
            url=address,
            sha256=sha256_of(fragment),
            requires_python=attributes.get("data-requires-python"),
            yanked="data-yanked" in attributes,
        )
        for (address, fragment), attributes in found
    )
    projects = tuple((_last_folder(address), address) for (address, _), _ in found if address.endswith("/"))
    return Page(tuple(link for link in files if _is_wheel(link)), projects)


class _Anchors(HTMLParser):
    """The `<a href>` of a page with their attributes; an attribute without a value is empty."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[dict[str, str]] = []
        self.base: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        if tag == "base" and self.base is None:
            self.base = known.get("href")
        elif tag == "a" and known.get("href") and len(self.found) < MOST_LINKS:
            self.found.append(known)


def _last_folder(address: str) -> str:
    return clean_line(unquote(urlsplit(address).path.rstrip("/").rpartition("/")[2]), 200)


def _folder(url: str) -> str:
    return url if url.endswith("/") else f"{url}/"


def _is_wheel(link: Link) -> bool:
    return link.file.endswith(".whl") and "/" not in link.file and "\\" not in link.file
