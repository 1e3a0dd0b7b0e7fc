"""What is settled around the full-screen program."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from appliance.paths import Paths
from tui.background import in_background
from tui.terminal import file_logging, prefers_ascii, prepare


def test_over_ssh_animations_are_off_unless_asked_for() -> None:
    environ = {"SSH_CONNECTION": "1 2 3 4", "TEXTUAL_FPS": "30"}
    prepare(environ)
    assert environ["TEXTUAL_ANIMATIONS"] == "none"
    assert environ["TEXTUAL_FPS"] == "30"
    local: dict[str, str] = {}
    prepare(local)
    assert local == {}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "C.utf8"}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, True),
        ({"TERM": "linux", "LANG": "en_US.UTF-8"}, True),
    ],
)
def test_ascii_is_chosen_where_more_cannot_be_trusted(environ: dict[str, str], expected: bool) -> None:
    assert prefers_ascii(environ) is expected


def test_log_records_go_to_a_file_not_over_the_screen(paths: Paths) -> None:
    root = logging.getLogger()
    before = root.handlers[:]
    with file_logging(paths):
        assert len(root.handlers) == 1
        logging.getLogger("appliance.ui").warning("noted")
    assert root.handlers == before
    assert "noted" in (paths.logs / "ui.log").read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(paths: Paths) -> None:
    paths.state.parent.mkdir(parents=True, exist_ok=True)
    paths.state.write_text("a file, not a folder")
    with file_logging(paths):
        logging.getLogger("appliance.ui").warning("nowhere")


async def test_a_call_in_the_background_returns_or_raises() -> None:
    assert await in_background(lambda: 6 * 7) == 42
    with pytest.raises(ZeroDivisionError):
        await in_background(lambda: 1 // 0)


def test_a_call_that_waits_does_not_hold_up_the_end_of_the_loop() -> None:
    release, ended = threading.Event(), threading.Event()

    def slow() -> None:
        release.wait(30)
        ended.set()

    async def leave() -> None:
        task = asyncio.create_task(in_background(slow))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())  # would wait for the call if it were in the loop's executor
    assert not ended.is_set()
    release.set()
    assert ended.wait(5)
