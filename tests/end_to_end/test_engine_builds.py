"""An engine build from a local index, through a running daemon: installed, chosen, served, removed."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tests.end_to_end.appliance import MODEL, Home, until
from tests.engines.builds.index_server import Index, Offer
from tests.engines.builds.wheel_files import VERSION, small_wheel, xllamacpp_wheel

NAME = f"vulkan-{VERSION}"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_build_serves_after_a_restart_of_the_engine(home: Home, tmp_path: Path) -> None:
    with Index({"vulkan": {"xllamacpp": [Offer(xllamacpp_wheel(tmp_path))]}}) as index, home.up(MODEL) as up:
        before = up.status()["engines"][0]
        done = home.run("engines", "install", "vulkan", "--source", index.url, "--json")
        assert done.code == 0, done.err
        assert done.document["name"] == NAME
        assert "downloading" in done.err, "progress is for the person, not in the document"

        used = home.here("engines", "use", NAME)
        assert used.code == 0, used.err
        assert "until a restart" in used.out
        assert up.status()["engines"][0]["pid"] == before["pid"], "the running engine is left alone"
        assert up.raw("POST", "/api/engine/restart", {})[0] == 200
        after = up.status()["engines"][0]
        assert after["build"] == f"xllamacpp {VERSION} vulkan"
        status, reply = up.raw(
            "POST", "/v1/chat/completions",
            {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
        )  # fmt: skip
        assert status == 200, reply

        refused = home.here("engines", "rm", NAME)
        assert refused.code == 1
        assert "serves a model now" in refused.err
        back = home.here("engines", "rollback", "--json")
        assert (back.document["use"], back.document["chosen"]["name"]) == ("auto", "xllamacpp")
        assert up.raw("POST", "/api/engine/restart", {})[0] == 200
        assert home.here("engines", "rm", NAME).code == 0
        assert up.status()["engines"][0]["build"] == f"xllamacpp {VERSION}"


def test_what_goes_wrong_in_the_daemon_reaches_the_command(home: Home, tmp_path: Path) -> None:
    broken = Offer(small_wheel(tmp_path, {"xllamacpp/__init__.py": b"raise ImportError('no such thing')"}))
    unstated = Offer(small_wheel(tmp_path / "u", {"xllamacpp/__init__.py": b""}), stated=None)
    offered = {"vulkan": {"xllamacpp": [broken]}, "cu128": {"xllamacpp": [unstated]}}
    with Index(offered) as index, home.up(MODEL) as up:
        failed = home.here("engines", "install", "vulkan", "--source", index.url)
        assert failed.code == 1
        assert "does not work here" in failed.err
        assert "no such thing" in failed.err
        failed = home.here("engines", "install", "cuda", "--source", f"{index.url}cu128/")
        assert "states no SHA-256" in failed.err
        for path, body, words in (
            ("use", {"name": NAME}, "does not work here"),
            ("use", {"name": "none"}, "No engine has the name"),
            ("use", {}, "name is missing"),
            ("install", {"backend": "metal"}, None),
            ("rollback", {}, "no build before"),
        ):
            status, answer = up.raw("POST", f"/api/engines/{path}", body)
            if words is None:
                ended = until(lambda: _ended(up.raw("GET", "/api/engines/install")[1]), 20, "the install")
                assert ended["error"]["code"] == "usage"
            else:
                assert status in (400, 503)
                assert words in answer["error"]["message"]
        listed = home.here("engines", "list")
        assert "can't be used" in listed.out
        assert "failed its test load" in listed.out
        assert up.status()["engines"][0]["state"] == "ready"


def _ended(row: dict[str, object]) -> dict[str, dict[str, object]] | None:
    return row if row["state"] == "failed" else None  # type: ignore[return-value]


def test_ctrl_c_ends_an_install_in_the_daemon(home: Home, tmp_path: Path) -> None:
    offer = Offer(small_wheel(tmp_path, {"xllamacpp/__init__.py": bytes(200_000)}))
    with Index({"": {"xllamacpp": [offer]}}, hold=threading.Event()) as index, home.up(MODEL) as up:
        process, err = home.spawn("engines", "install", "vulkan", "--source", index.url)
        assert index.half_way.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130, err.read_text()
        assert process.stdout is not None
        process.stdout.close()
        assert up.raw("GET", "/api/engines/install")[1]["state"] == "cancelled"
        assert [path.name for path in (home.root / "data" / "engines").iterdir()] == [".lock"]
