"""A family's name means its best member for a machine and the goals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import UnknownModel
from appliance.hardware import Machine
from appliance.operations.machine.survey import Survey
from appliance.operations.plans import family
from appliance.operations.plans.described import described
from appliance.operations.plans.family import Ground, Ranking, is_family, ranking
from appliance.operations.plans.plan import Wishes
from appliance.paths import Paths
from appliance.units import GIB
from tests.operations.families import HUGE, KIN, LARGE, MIDDLE, SMALL, Entry, library_of, unseen
from tests.operations.hubhouse import body, sha256

NON_COMMERCIAL = "non-commercial: research only"


async def ranked(
    paths: Paths,
    folder: Path,
    *entries: Entry,
    gpus: str = "8GiB,RTX 4060",
    ram: str | None = "32GiB",
    **wishes: Any,
) -> Ranking:
    shelf = library_of(paths, folder, *entries)
    machine = described(gpus.split(";") if gpus else [], ram)
    assert machine is not None
    found = await ranking(shelf, "kin", Ground.of(machine), Wishes(**wishes))
    assert found is not None
    return found


def ids(found: Ranking) -> list[str]:
    return [member.ref.id for _, member in found.rows]


def seen_machine(monkeypatch: pytest.MonkeyPatch, ram: int) -> None:
    """This machine has no GPU and so much RAM."""

    async def glance(*_: object) -> Survey:
        machine = Machine(
            gpus=(), ram_total=ram, ram_available=ram, cores_physical=8, cores_logical=16,
            battery=None, cpu_name=None, notes=(),
        )  # fmt: skip
        return Survey(machine, (), None, None)

    monkeypatch.setattr(family, "glance", glance)


@pytest.mark.parametrize(
    ("gpus", "best"),
    [("24GiB,RTX 4090", "kin-32b"), ("8GiB,RTX 4060", "kin-8b"), ("4GiB,RTX 3050", "kin-0.6b")],
)
async def test_the_largest_that_is_whole_on_the_gpu_is_the_best(
    gpus: str, best: str, paths: Paths, tmp_path: Path
) -> None:
    found = await ranked(paths, tmp_path / "m", *KIN, gpus=gpus)
    assert found.best is not None
    assert found.best.ref.id == best
    assert all(member.plan is not None for _, member in found.rows)


async def test_without_a_gpu_speed_decides(paths: Paths, tmp_path: Path) -> None:
    found = await ranked(paths, tmp_path / "m", *KIN, gpus="", ram="16GiB")
    assert ids(found)[0] == "kin-0.6b"
    standing = {member.ref.id: row.standing for row, member in found.rows}
    assert standing["kin-8b"] == "below_goal"
    assert standing["kin-32b"] == "no"


async def test_where_no_header_is_at_hand_the_size_is_all_there_is(paths: Paths, tmp_path: Path) -> None:
    found = await ranked(paths, tmp_path / "m", unseen(SMALL), unseen(LARGE), unseen(HUGE))
    assert ids(found) == ["kin-8b", "kin-0.6b", "kin-32b"]
    for _, member in found.rows:
        assert (member.plan, member.problem) == (None, None)
    row = found.to_json()[0]
    assert row["estimated"]
    assert row["ctx"] is None
    assert row["decode"] is not None


async def test_a_header_that_was_asked_for_and_can_not_be_had_is_said_so(
    paths: Paths, tmp_path: Path
) -> None:
    shelf = library_of(paths, tmp_path / "m", SMALL, unseen(LARGE))
    machine = described(["8GiB"], "16GiB")
    assert machine is not None
    found = await ranking(
        shelf, "kin", Ground.of(machine), Wishes(), fetch_headers=True, env=dict(os.environ)
    )
    assert found is not None
    problems = {member.ref.id: member.problem for _, member in found.rows}
    assert problems["kin-0.6b"] is None
    assert problems["kin-8b"]


async def test_a_limited_licence_is_never_what_a_family_means(paths: Paths, tmp_path: Path) -> None:
    limited = Entry("kin-8b-limited", "qwen3-8b", 8.2e9, licence_note=NON_COMMERCIAL)
    found = await ranked(paths, tmp_path / "m", SMALL, limited)
    assert ids(found) == ["kin-0.6b", "kin-8b-limited"]
    alone = await ranked(paths, tmp_path / "n", limited)
    assert alone.best is None
    assert alone.to_json()[0]["restricted"]


async def test_members_for_embeddings_are_not_mixed_with_those_for_chat(paths: Paths, tmp_path: Path) -> None:
    embedding = Entry("kin-embed-8b", "qwen3-8b", 8.2e9, use="embedding")
    assert ids(await ranked(paths, tmp_path / "m", embedding, SMALL)) == ["kin-0.6b", "kin-embed-8b"]


async def test_a_profile_that_needs_more_context_may_mean_a_smaller_member(
    paths: Paths, tmp_path: Path
) -> None:
    found = {}
    for profile in ("batch", "docs"):
        machine = {"gpus": "7GiB,RTX 4060", "profile": profile}
        found[profile] = ids(await ranked(paths, tmp_path / "m", SMALL, LARGE, **machine))[0]
    assert found == {"batch": "kin-8b", "docs": "kin-0.6b"}


async def test_any_other_name_is_no_family(paths: Paths, tmp_path: Path) -> None:
    shelf = library_of(paths, tmp_path / "m", SMALL)
    machine = described([], "16GiB")
    assert machine is not None
    assert is_family(shelf, "KIN")
    for name in ("kin-0.6b", "kin:Q4_K_M", "nonsuch", "auto", ""):
        assert not is_family(shelf, name)
        assert await ranking(shelf, name, Ground.of(machine), Wishes()) is None
    with pytest.raises(UnknownModel):
        await family.resolve(shelf, "nonsuch")


async def test_up_and_pull_mean_the_best_member_for_this_machine(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = library_of(paths, tmp_path / "m", SMALL, MIDDLE, LARGE)
    seen_machine(monkeypatch, 32 * GIB)
    assert (await family.resolve(shelf, "kin")).id == "kin-0.6b"  # the others are under 15 tokens/s


async def test_where_nothing_fits_the_smallest_is_meant(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = library_of(paths, tmp_path / "m", MIDDLE, LARGE)
    seen_machine(monkeypatch, 1 * GIB)
    assert (await family.resolve(shelf, "kin")).id == "kin-4b"


async def test_a_member_that_is_here_and_fits_is_served_instead_of_a_better_one(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, source = body(1, block_count=1, embedding_length=32), tmp_path / "own.gguf"
    source.write_bytes(raw)
    shelf = library_of(paths, tmp_path / "m", SMALL)
    text = paths.user_catalog.read_text(encoding="utf-8")
    paths.user_catalog.write_text(
        text
        + f"""
[models.kin-own]
family = "kin"
name = "Own"
params = 1e6
use = ["chat"]
[[models.kin-own.variants]]
quant = "F32"
source = {{ kind = "file", path = "{source}" }}
files = [{{ name = "own.gguf", size = {len(raw)}, sha256 = "{sha256(raw)}" }}]
""",
        encoding="utf-8",
    )
    seen_machine(monkeypatch, 32 * GIB)
    assert (await family.resolve(shelf, "kin")).id == "kin-0.6b"
    await shelf.store.pull(shelf.resolve("kin-own"))
    assert (await family.resolve(shelf, "kin")).id == "kin-own"
