"""Which folder of the publisher's index is for this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.engines.builds.variants import Backend, Facts, rocm_version, wanted
from appliance.errors import EngineError


@pytest.mark.parametrize(
    ("backend", "facts", "variants", "noted"),
    [
        ("cuda", Facts("linux", "595.45.04"), ("cu132", "cu128"), False),
        ("cuda", Facts("linux", "580.65.06"), ("cu128",), False),
        ("cuda", Facts("win32", "570.86"), ("cu128",), False),
        ("cuda", Facts("linux", "535.230.02"), ("cu128",), True),
        ("rocm", Facts("linux", rocm="7.2.4-98"), ("rocm-7.2.4",), False),
        ("rocm", Facts("linux", rocm="6.4.1-83"), ("rocm-6.4.1",), False),
        ("rocm", Facts("linux"), ("rocm-7.2.4", "rocm-6.4.1"), True),
        ("vulkan", Facts("linux"), ("vulkan",), False),
        ("vulkan", Facts("win32"), ("vulkan",), False),
    ],
)
def test_by_driver(backend: Backend, facts: Facts, variants: tuple[str, ...], noted: bool) -> None:
    found = wanted(backend, facts, explicit=False)
    assert (found.variants, found.note is not None) == (variants, noted)


@pytest.mark.parametrize(
    ("backend", "facts", "words"),
    [
        ("cuda", Facts("linux", "470.223.02"), "570 or later"),
        ("cuda", Facts("linux"), "NVIDIA's driver first"),
        ("cuda", Facts("linux", "unknown"), "NVIDIA's driver first"),
        ("rocm", Facts("win32"), "install vulkan"),
        ("vulkan", Facts("darwin"), "engines list"),
    ],
)
def test_what_cannot_work_is_refused_before_a_download(backend: Backend, facts: Facts, words: str) -> None:
    with pytest.raises(EngineError) as caught:
        wanted(backend, facts, explicit=False)
    assert words in str(caught.value.hint)


def test_with_a_source_of_their_own_users_may_install_before_the_driver() -> None:
    found = wanted("cuda", Facts("linux"), explicit=True)
    assert found.variants == ("cu128",)
    assert found.note == "No NVIDIA driver was found here."


def test_rocm_tells_its_version(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("7.2.4-98\n")
    assert rocm_version(tmp_path / "version") == "7.2.4-98"
    assert rocm_version(tmp_path / "none") is None
