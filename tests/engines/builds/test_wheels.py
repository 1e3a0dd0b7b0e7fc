"""Which wheel fits, and what is said when none does."""

from __future__ import annotations

import pytest
from packaging.tags import Tag, compatible_tags, cpython_tags

from appliance.engines.builds.index import Link
from appliance.engines.builds.wheels import choose, here
from appliance.errors import EngineError

PLATFORMS = ["manylinux_2_36_x86_64", "manylinux_2_35_x86_64", "manylinux_2_17_x86_64", "linux_x86_64"]
TAGS = (*cpython_tags((3, 11), platforms=PLATFORMS), *compatible_tags((3, 11), "cp311", PLATFORMS))
NEW = "xllamacpp-2026.10.11549-cp310-abi3-manylinux_2_35_x86_64.whl"


def links(*names: str, **fields: object) -> list[Link]:
    return [Link(name, f"https://x/{name}", "0" * 64, **fields) for name in names]  # type: ignore[arg-type]


def chosen(*names: str, version: str | None = "2026.10.11549", tags: tuple[Tag, ...] = TAGS) -> str:
    return choose(links(*names), tags, version=version, python="3.11.2").link.file


def test_the_wanted_version_for_this_system() -> None:
    assert (
        chosen(
            "xllamacpp-2026.9.11063-cp310-abi3-manylinux_2_35_x86_64.whl",
            "xllamacpp-2026.10.11549-cp310-abi3-win_amd64.whl",
            "xllamacpp-2026.10.11549-cp310-abi3-manylinux_2_35_aarch64.whl",
            NEW,
            "xllamacpp-2026.11.12000-cp310-abi3-manylinux_2_35_x86_64.whl",
        )
        == NEW
    )


def test_a_wheel_for_an_older_glibc_fits_one_for_a_newer_does_not() -> None:
    old, newer = NEW.replace("2_35", "2_17"), NEW.replace("2_35", "2_39")
    assert chosen(old, newer) == old
    assert chosen(old, NEW) == NEW  # the nearest to this system
    with pytest.raises(EngineError, match="for this computer") as caught:
        chosen(newer)
    assert caught.value.cause == "There is cp310-abi3-manylinux_2_39_x86_64."


def test_without_a_version_the_newest() -> None:
    older = NEW.replace("2026.10.11549", "2026.9.20000")
    assert chosen(older, NEW, version=None) == NEW
    assert choose([*links(NEW, yanked=True), *links(older)], TAGS, python="3.11.2").link.file == older


def test_a_local_version_is_a_variant_of_the_same() -> None:
    assert chosen(NEW.replace("11549", "11549+cu128")) == NEW.replace("11549", "11549+cu128")


def test_a_version_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(EngineError) as caught:
        chosen(NEW.replace("10.11549", "9.11063"), NEW.replace("10.11549", "8.10566"))
    assert caught.value.message == "There is no xllamacpp 2026.10.11549 there."
    assert caught.value.cause == "There is 2026.8.10566, 2026.9.11063."


def test_python_that_is_too_old_for_a_file() -> None:
    with pytest.raises(EngineError, match="for this computer"):
        choose(links(NEW, requires_python=">=3.12"), TAGS, python="3.11.2")
    broken = links(NEW, requires_python="what?")
    assert choose(broken, TAGS, python="3.11.2").link.file == NEW


def test_names_that_are_no_wheels_are_passed_over() -> None:
    with pytest.raises(EngineError, match="No wheel was found"):
        chosen("xllamacpp.whl", "a-b.whl", "xllamacpp-1-2-3-4-5-6.whl")


def test_this_interpreter_has_tags() -> None:
    assert choose(links("x-1-py3-none-any.whl"), here()).version == "1"
