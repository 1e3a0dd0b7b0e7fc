"""Whether saved prompts come back is shown once, and remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.engines import session
from appliance.engines.slots import Proof, Proofs, prove
from tests.engines.slots.fake_slots import FakeSlots

KIND = "ab" * 16


async def proven(server: FakeSlots, *, limit_s: float = 30.0) -> Proof:
    server.folder.mkdir(exist_ok=True)
    async with server.serving() as endpoint, session(endpoint) as client:
        return await prove(client, server.folder / "new-1.slot", ctx=server.ctx, limit_s=limit_s)


async def test_an_engine_that_keeps_its_word_is_left_empty(tmp_path: Path) -> None:
    server = FakeSlots(tmp_path / "slots")
    assert await proven(server) == Proof(True)
    assert server.held == [[], []]
    assert list(server.folder.iterdir()) == []
    assert server.calls == ["save 0", "erase 0", "restore 0", "erase 0"]


@pytest.mark.parametrize(
    ("action", "fault", "why", "final"),
    [
        ("save", "501", "answered 501", True),
        ("save", "500", "answered 500", False),
        ("save", "garbage", "answered no JSON", False),
        ("save", "dies", "can't be asked", False),
        ("save", "fewer", "of 32 tokens were saved", False),
        ("restore", "500", "answered 500", False),
        ("restore", "forgets", "used 0 of 32 tokens", False),
        ("completion", "other words", "another one", False),
        ("completion", "garbage", "answered no JSON", False),
        ("tokenize", "500", "answered 500", False),
    ],
)
async def test_whatever_is_not_as_it_should_be_is_no_proof(
    tmp_path: Path, action: str, fault: str, why: str, final: bool
) -> None:
    found = await proven(FakeSlots(tmp_path / "slots", faults={action: fault}))
    assert not found.works
    assert why in found.why
    assert found.final is final
    assert "secret" not in found.why
    assert list((tmp_path / "slots").iterdir()) == []


@pytest.mark.parametrize("action", ["completion", "save", "restore"])
async def test_it_has_an_end_whatever_hangs(tmp_path: Path, action: str) -> None:
    found = await proven(FakeSlots(tmp_path / "slots", faults={action: "hangs"}), limit_s=0.3)
    assert (found.works, found.final) == (False, False)


async def test_a_context_that_is_too_short_is_not_tried(tmp_path: Path) -> None:
    server = FakeSlots(tmp_path / "slots", ctx=40)
    assert not (await proven(server)).works
    assert server.asked == 0


def test_what_was_shown_is_known_and_what_failed_is_tried_three_times_a_day(tmp_path: Path) -> None:
    now = 1e9
    proofs = Proofs(tmp_path / "state" / "proofs.json", clock=lambda: now)
    assert proofs.of(KIND) is None
    for settled in (False, False, True):
        proofs.begin(KIND)
        proofs.end(KIND, Proof(False, "it was slow", final=False))
        found = proofs.of(KIND)
        assert found is not None
        assert (found.works, found.why, found.settled) == (False, "it was slow", settled)
    proofs.end("cd" * 16, Proof(True))
    proofs.end("ef" * 16, Proof(False, "never"))
    now += 86_401
    assert proofs.of(KIND) is None
    assert [found.settled for kind in ("cd", "ef") if (found := proofs.of(kind * 16))] == [True, True]
    assert (tmp_path / "state" / "proofs.json").stat().st_mode & 0o777 == 0o600


def test_an_engine_that_died_of_the_proof_counts_and_a_stop_meanwhile_does_not(tmp_path: Path) -> None:
    proofs = Proofs(tmp_path / "proofs.json")
    proofs.begin(KIND)  # and nothing is heard of it
    before = proofs.of(KIND)
    assert before is not None
    assert (before.works, before.tries, before.settled) == (False, 1, False)
    proofs.begin(KIND)
    proofs.restore(KIND, before)
    assert proofs.of(KIND) == before


@pytest.mark.parametrize("text", ["", "[]", '{"v": 9}', '{"v": 1, "proofs": {"ab": {"works": "yes"}}}'])
def test_a_broken_file_is_begun_anew(tmp_path: Path, text: str) -> None:
    file = tmp_path / "proofs.json"
    file.write_text(text)
    proofs = Proofs(file)
    assert proofs.of("ab") is None
    proofs.end(KIND, Proof(True))
    found = proofs.of(KIND)
    assert found is not None
    assert found.works


def test_the_file_is_bounded(tmp_path: Path) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1
        return now

    proofs = Proofs(tmp_path / "proofs.json", clock=clock)
    for number in range(140):
        proofs.end(f"{number:032x}", Proof(True))
    assert proofs.of(f"{0:032x}") is None
    assert proofs.of(f"{139:032x}") is not None
    assert (tmp_path / "proofs.json").stat().st_size < 32_768
