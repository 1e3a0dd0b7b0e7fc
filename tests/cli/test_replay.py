"""`appliance replay` and `appliance doctor --bundle` as commands: exit codes, documents, words."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from unittest import mock

import pytest

from tests.cli.indoors import Indoors

TRACES = Path(__file__).parent.parent / "data" / "traces"


@pytest.fixture
def user(tmp_path: Path) -> Indoors:
    return Indoors(tmp_path / "home")


def test_a_trace_is_told_in_words(user: Indoors) -> None:
    done = user.run("replay", str(TRACES / "cool_down.jsonl"))
    assert done.code == 0
    assert "0:05  gpu: warm → critical: it was at or above its slowdown threshold for 5.0 s" in done.out
    assert "hot (m): remote.thermal: The machine is critically hot" in done.out
    assert "gpu: warm 5.0 s (6%), critical 1 m 06 s (73%), cool 19.0 s (21%)" in done.out
    assert "how queues and temperatures would have gone" in done.out.replace("\n", " ")
    assert "reject.thermal     n/a    1" in done.out
    assert max(map(len, done.out.splitlines())) <= 120


def test_the_document_has_all_of_it(user: Indoors) -> None:
    found = user.run("replay", str(TRACES / "cool_down.jsonl"), "--json").document
    assert [(one["at"], one["after"]) for one in found["changes"] if one["what"] == "gpu"] == [
        (0, "warm"), (5, "critical"), (71, "cool")]  # fmt: skip
    assert found["reasons"] == {
        "before": {}, "now": {"local.ok": 2, "reject.thermal": 1, "remote.thermal": 1}}  # fmt: skip
    assert found["settings"]["governor.hold"] == 5.0
    assert found["seconds"]["gpu"]["critical"] == 66.0
    assert (found["trace"]["begins"], found["trace"]["ends"]) == (0.0, 90.0)
    assert found["notes"]


def test_settings_of_a_file_change_what_happens(user: Indoors, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[governor]\nhold = "60s"\n')
    done = user.run("replay", str(TRACES / "cool_down.jsonl"), "--settings", str(file), "--json")
    assert "critical" not in done.document["seconds"]["gpu"]
    file.write_text('[governor]\nhold = "long"\n')
    done = user.run("replay", str(TRACES / "cool_down.jsonl"), "--settings", str(file))
    assert done.code == 2
    assert "governor.hold" in done.err
    assert "Traceback" not in done.err


def test_stdin_is_a_trace(user: Indoors) -> None:
    text = (TRACES / "hot_start.jsonl").read_bytes()
    with mock.patch("appliance.cli.replay.sys.stdin", mock.Mock(buffer=io.BytesIO(text))):
        from appliance.cli.replay import _source

        assert _source("-", None).data == text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Name one trace."),
        (["x", "--last", "1m"], "can't be replayed together"),
        (["/nowhere/x.jsonl"], "can't be read"),
        (["/"], "is a folder"),
        (["--last", "soon"], "--last can't be 'soon'"),
        (["--last", "0s"], "--last is no time"),
    ],
)
def test_a_wrong_call_is_explained(user: Indoors, arguments: list[str], told: str) -> None:
    done = user.run("replay", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.out == ""


def test_a_bad_line_is_told_with_file_and_number(user: Indoors, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"at": 0, "kind": "sample", "device": "gpu"}\n{"at": 1, "kind": "sampel"}\n')
    done = user.run("replay", str(file), "--json")
    assert done.code == 2
    assert f"✖ Line 2 of {file} can't be used." in done.err
    assert "Do: Did you mean `sample`?" in done.err
    assert done.document["error"]["message"].startswith("Line 2 of")


def test_no_journal_is_a_failure(user: Indoors) -> None:
    done = user.run("replay", "--last", "30m")
    assert (done.code, "no daemon has run here" in done.err) == (1, True)


@pytest.mark.parametrize("content", [b"", b"\x00" * 99, b"not a zip"])
def test_a_broken_zip_is_refused(user: Indoors, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.zip"
    file.write_bytes(b"PK\x03\x04" + content)
    done = user.run("replay", str(file))
    assert (done.code, "broken zip" in done.err) == (2, True)


def test_a_damaged_bundle_is_refused(user: Indoors, tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("timeline.jsonl", "".join(f"# {number * 7919}\n" for number in range(999)))
    data = bytearray(file.read_bytes())
    for spot in range(60, 400):
        data[spot] ^= 0x5A
    file.write_bytes(bytes(data))
    done = user.run("replay", str(file))
    assert (done.code, "broken zip" in done.err) == (2, True)


def test_a_zip_without_a_timeline_is_refused(user: Indoors, tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("other.txt", "x")
    done = user.run("replay", str(file))
    assert (done.code, "holds no timeline.jsonl" in done.err) == (2, True)


def test_a_zip_that_unpacks_to_too_much_is_not_unpacked(user: Indoors, tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("timeline.jsonl", "w") as out,
    ):
        for _ in range(65):
            out.write(b"\n" * (1 << 20))
    done = user.run("replay", str(file))
    assert (done.code, "larger than 64.0 MiB" in done.err) == (2, True)


def test_doctor_packs_a_bundle_and_never_over_a_file(user: Indoors, tmp_path: Path) -> None:
    file = tmp_path / "b.zip"
    done = user.run("doctor", "--bundle", str(file), "--json")
    assert done.code == 0, done.err
    assert done.document["contains_prompts"] is False
    names = [member["name"] for member in done.document["members"]]
    assert {"README.txt", "doctor.json", "settings.toml", "version.json"} <= set(names)
    assert [one["name"] for one in done.document["missing"]] == ["timeline.jsonl", "logs/daemon.log"]
    with zipfile.ZipFile(file) as archive:
        assert sorted(archive.namelist()) == sorted(names)
        assert json.loads(archive.read("version.json"))["daemon"] is None
    again = user.run("doctor", "--bundle", str(file))
    assert (again.code, "is there already" in again.err) == (2, True)
    assert user.run("replay", str(file)).code == 2, "it has no timeline"


def test_force_alone_means_nothing(user: Indoors) -> None:
    done = user.run("doctor", "--force")
    assert (done.code, "needs --bundle" in done.err) == (2, True)
