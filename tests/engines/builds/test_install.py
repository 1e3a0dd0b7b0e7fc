"""From an index on loopback to a folder: what is taken, and all that is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engines.builds import fetch, records, using
from appliance.engines.builds.fetch import Step
from appliance.engines.builds.install import Order, Outcome, install
from appliance.engines.builds.source import open_to_all, require_allowed
from appliance.engines.builds.variants import Wanted
from appliance.errors import ApplianceError, DiskFull, DownloadError, EngineError, UsageError
from appliance.paths import Paths
from appliance.store.threads import StopFlag, Stopped
from tests.engines.builds.index_server import Index, Offer
from tests.engines.builds.wheel_files import VERSION, small_wheel

ROOT = Path(__file__).parents[3]
VULKAN = Wanted("vulkan", ("vulkan",))
CUDA = Wanted("cuda", ("cu132", "cu128"))
MEMBERS = {"xllamacpp/__init__.py": b"x = 1\n", "xllamacpp/lib.so": os.urandom(300_000)}
FILE = f"xllamacpp-{VERSION}-py3-none-any.whl"


def bring(
    paths: Paths,
    source: str | None,
    wanted: Wanted = VULKAN,
    *,
    steps: list[Step] | None = None,
    **fields: object,
) -> Outcome:
    """Install under the lock, as the operations do."""
    order = replace(Order(wanted, source, VERSION), **fields)  # type: ignore[arg-type]
    told = steps if steps is not None else []
    with records.alone(paths):
        return install(paths, order, told.append, StopFlag())


def offer(folder: Path, **fields: str | None) -> Offer:
    return Offer(small_wheel(folder, MEMBERS), **fields)  # type: ignore[arg-type]


def nothing_is_here(paths: Paths) -> bool:
    left = {path.name for path in paths.engines.iterdir()} if paths.engines.exists() else set()
    return left <= {".lock"} and records.installed(paths) == ()


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("at", ["", "vulkan/", "vulkan/xllamacpp/", "vulkan/xllamacpp"])
def test_an_index_its_variant_or_its_project_page(
    tmp_path: Path, paths: Paths, as_json: bool, at: str
) -> None:
    one = offer(tmp_path)
    steps: list[Step] = []
    with Index({"vulkan": {"xllamacpp": [one]}}, as_json=as_json) as index:
        got = bring(paths, index.url + at, steps=steps)
    assert got.fresh
    here = records.find(paths, f"vulkan-{VERSION}")
    assert here == got.record
    assert (here.kind, here.variant, here.file, here.sha256) == ("xllamacpp", "vulkan", FILE, one.stated)
    assert here.url == f"{index.url}files/vulkan/{FILE}"
    assert (here.date, here.tested) == ("2026-10-10", None)
    home = records.home(paths, here.name)
    assert {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()} == MEMBERS
    (pin,) = records.read_state(paths).pins[FILE]
    assert (pin.sha256, pin.url, pin.version, pin.date) == (here.sha256, here.url, VERSION, "2026-10-10")
    assert [step.phase for step in steps][:1] == ["resolving"]
    assert steps[-1] == Step(
        "unpacking", "lib.so", sum(map(len, MEMBERS.values())), sum(map(len, MEMBERS.values()))
    )
    assert (paths.engines / "state.json").stat().st_mode & 0o777 == 0o600


def test_the_first_variant_that_has_it(tmp_path: Path, paths: Paths) -> None:
    old = Offer(small_wheel(tmp_path / "o", MEMBERS, name="xllamacpp-2026.9.11063-py3-none-any.whl"))
    with Index({"cu132": {"xllamacpp": [old]}, "cu128": {"xllamacpp": [offer(tmp_path)]}}) as index:
        assert bring(paths, index.url, CUDA).record.name == f"cu128-{VERSION}"


def test_the_same_again_fetches_nothing(tmp_path: Path, paths: Paths) -> None:
    with Index({"": {"xllamacpp": [offer(tmp_path)]}}) as index:
        first = bring(paths, index.url)
        fetched = len(index.asked)
        again = bring(paths, index.url)
        assert (again.fresh, again.record) == (False, first.record)
        assert not [path for path, _ in index.asked[fetched:] if path.startswith("/files/")]


def test_a_wheel_by_its_address(tmp_path: Path, paths: Paths) -> None:
    one = offer(tmp_path)
    with Index({"cu128": {"xllamacpp": [one]}}) as index:
        with pytest.raises(UsageError, match="needs its hash"):
            bring(paths, index.wheel_url(one).partition("#")[0])
        wrong = index.wheel_url(one).partition("#")[0] + "#sha256=" + "0" * 64
        with pytest.raises(EngineError, match="not the file that the index states"):
            bring(paths, wrong)
        assert nothing_is_here(paths)
        assert bring(paths, index.wheel_url(one)).record.sha256 == one.stated


def test_a_local_wheel_and_a_folder_of_wheels(tmp_path: Path, paths: Paths) -> None:
    wheel = small_wheel(tmp_path / "w", MEMBERS)
    small_wheel(tmp_path / "w", MEMBERS, name="xllamacpp-2030.1.20000-py3-none-any.whl")
    got = bring(paths, str(tmp_path / "w"))
    assert (got.record.version, got.record.url) == (VERSION, str(wheel)), (
        "the installed version, not the newest"
    )
    assert any("local file" in note for note in got.notes)
    assert bring(paths, wheel.as_uri()).fresh is False
    newer = bring(paths, str(tmp_path / "w" / "xllamacpp-2030.1.20000-py3-none-any.whl"))
    assert newer.record.version == "2030.1.20000", "a file by its name is meant"
    for gone in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="holds none"):
            bring(paths, str(gone))


def test_a_file_that_is_not_what_the_index_states(tmp_path: Path, paths: Paths) -> None:
    with (
        Index({"": {"xllamacpp": [offer(tmp_path, stated="1" * 64)]}}) as index,
        pytest.raises(EngineError, match="refused: it is not the file") as caught,
    ):
        bring(paths, index.url)
    assert "1" * 64 in str(caught.value.cause)
    assert nothing_is_here(paths)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_file_without_a_hash_is_not_even_asked_for(tmp_path: Path, paths: Paths, as_json: bool) -> None:
    with Index({"": {"xllamacpp": [offer(tmp_path, stated=None)]}}, as_json=as_json) as index:
        with pytest.raises(EngineError, match="states no SHA-256"):
            bring(paths, index.url)
        assert not [path for path, _ in index.asked if path.startswith("/files/")]
    assert nothing_is_here(paths)


def test_a_name_stands_for_its_first_bytes(tmp_path: Path, paths: Paths) -> None:
    with Index({"vulkan": {"xllamacpp": [offer(tmp_path)]}}) as index:
        first = bring(paths, index.url).record
        using.remove(paths, first.name, forget=False)
        other = Offer(small_wheel(tmp_path / "o", MEMBERS | {"xllamacpp/more.py": b"import os"}))
        index.folders = {"vulkan": {"xllamacpp": [other]}}
        with pytest.raises(EngineError, match="not the file that was taken before") as caught:
            bring(paths, index.url)
        assert first.sha256 in str(caught.value.cause)
        assert records.installed(paths) == ()
        with pytest.raises(EngineError, match="taken before"):
            bring(paths, str(other.path))  # from another place neither
        index.folders = {"": {"xllamacpp": [other]}}
        with pytest.raises(EngineError, match="taken before"):
            bring(paths, index.url)
        using.remove(paths, FILE, forget=True)
        assert bring(paths, index.url).record.sha256 == other.stated


def test_two_variants_may_have_a_file_of_one_name(tmp_path: Path, paths: Paths) -> None:
    other = Offer(small_wheel(tmp_path / "o", MEMBERS | {"xllamacpp/more.py": b""}))
    with Index({"cu128": {"xllamacpp": [offer(tmp_path)]}, "vulkan": {"xllamacpp": [other]}}) as index:
        bring(paths, index.url, CUDA)
        bring(paths, index.url)
    assert {one.name for one in records.installed(paths)} == {f"cu128-{VERSION}", f"vulkan-{VERSION}"}
    assert len(records.read_state(paths).pins[FILE]) == 2


def test_what_tries_to_write_elsewhere_leaves_nothing(tmp_path: Path, paths: Paths) -> None:
    evil = Offer(small_wheel(tmp_path, MEMBERS | {"../../../state.json": b"{}"}))
    with Index({"": {"xllamacpp": [evil]}}) as index, pytest.raises(EngineError, match="not unpacked"):
        bring(paths, index.url)
    assert nothing_is_here(paths)
    assert not records.read_state(paths).pins


@pytest.mark.parametrize("as_json", [False, True])
def test_too_large(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    one = offer(tmp_path)
    monkeypatch.setattr(fetch, "LARGEST", one.path.stat().st_size - 1)
    with Index({"": {"xllamacpp": [one]}}, as_json=as_json) as index:
        with pytest.raises(EngineError, match="too large"):
            bring(paths, index.url)
        with pytest.raises(EngineError, match="too large"):
            bring(paths, str(one.path))
    assert nothing_is_here(paths)


def test_no_room(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    one = offer(tmp_path)
    free = 2 * one.path.stat().st_size
    monkeypatch.setattr("appliance.store.disk.usage", lambda _: (free, free))
    with Index({"": {"xllamacpp": [one]}}) as index, pytest.raises(DiskFull, match="more is needed"):
        bring(paths, index.url)
    assert nothing_is_here(paths)


def test_a_connection_that_breaks_is_taken_up_where_it_broke(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_PAUSE_S", 0.0)
    one = offer(tmp_path)
    with Index({"": {"xllamacpp": [one]}}, cut_after=100_000) as index:
        assert bring(paths, index.url).record.sha256 == one.stated
        asked = [wanted for path, wanted in index.asked if path.startswith("/files/")]
    assert asked == [None, "bytes=100000-"]


def test_no_wheel_for_this_computer(tmp_path: Path, paths: Paths) -> None:
    name = f"xllamacpp-{VERSION}-cp310-abi3-win32.whl"
    with (
        Index({"": {"xllamacpp": [Offer(small_wheel(tmp_path, MEMBERS, name=name))]}}) as index,
        pytest.raises(EngineError, match="for this computer") as caught,
    ):
        bring(paths, index.url)
    assert caught.value.cause == "There is cp310-abi3-win32."


def test_an_index_that_is_down_or_none(tmp_path: Path, paths: Paths) -> None:
    with Index({"": {"xllamacpp": []}}) as index:
        with pytest.raises(DownloadError, match="has no engine wheels for vulkan"):
            bring(paths, index.url)
        url = index.url
    with pytest.raises(DownloadError) as caught:
        bring(paths, url)
    assert "can't be used" in caught.value.message
    assert caught.value.cause
    assert nothing_is_here(paths)


def test_below_the_floor_nothing_is_fetched(tmp_path: Path, paths: Paths) -> None:
    name = "xllamacpp-2026.7.10068-py3-none-any.whl"
    with Index({"": {"xllamacpp": [Offer(small_wheel(tmp_path, MEMBERS, name=name))]}}) as index:
        with pytest.raises(EngineError, match="below the security floor"):
            bring(paths, index.url, version="2026.7.10068")
        assert not [path for path, _ in index.asked if path.startswith("/files/")]
        got = bring(paths, index.url, version="2026.7.10068", allow_old=True)
    assert got.record.version == "2026.7.10068"


def test_a_stop_half_way_leaves_nothing(tmp_path: Path, paths: Paths) -> None:
    stop, hold = StopFlag(), threading.Event()
    ended: list[BaseException] = []

    def work(url: str) -> None:
        try:
            with records.alone(paths):
                install(paths, Order(VULKAN, url, VERSION), lambda _: None, stop)
        except BaseException as error:  # noqa: BLE001 - what it ended with is the result
            ended.append(error)

    with Index({"": {"xllamacpp": [offer(tmp_path)]}}, hold=hold) as index:
        thread = threading.Thread(target=work, args=(index.url,))
        thread.start()
        assert index.half_way.wait(20)
        stop.set()
        thread.join(20)
    assert not thread.is_alive()
    assert [type(error) for error in ended] == [Stopped]
    assert nothing_is_here(paths)


KILLED = """
import sys
from pathlib import Path
from tests.engines.builds.test_install import bring
from tests.engines.launches import paths_in
bring(paths_in(Path(sys.argv[1])), sys.argv[2])
"""


def test_a_kill_half_way_leaves_nothing_that_could_be_used(tmp_path: Path, paths: Paths) -> None:
    with Index({"": {"xllamacpp": [offer(tmp_path)]}}, hold=threading.Event()) as index:
        home = str(paths.config.parent)
        child = subprocess.Popen([sys.executable, "-c", KILLED, home, index.url], cwd=ROOT)
        assert index.half_way.wait(60)
        with pytest.raises(EngineError, match="Another process is installing"), records.alone(paths):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        left = [path.name for path in paths.engines.iterdir() if path.name.startswith(".new-")]
        assert len(left) == 1
        assert records.installed(paths) == ()
        assert not records.read_state(paths).pins
        index.hold = None
        assert bring(paths, index.url).fresh
    assert not [path for path in paths.engines.iterdir() if path.name.startswith(".new-")]


def test_plain_http_only_at_home_or_where_the_user_says() -> None:
    near = [
        "http://127.0.0.1:8/",
        "http://[::1]/",
        "http://localhost/",
        "http://10.1.2.3/",
        "http://192.168.0.9/",
    ]
    assert not any(map(open_to_all, [*near, "https://index.example/"]))
    assert all(map(open_to_all, ["http://index.example/", "http://8.8.8.8/", "http://localhost.example/"]))
    file = "http://files.example/a.whl"
    for source in (None, "https://index.example/", "http://127.0.0.1/", "http://other.example/"):
        with pytest.raises(EngineError, match="plain http"):
            require_allowed(file, source)
    require_allowed(file, "http://files.example/simple/")
    require_allowed("http://10.0.0.5/a.whl", "http://10.0.0.6/simple/")
    with pytest.raises(EngineError):
        require_allowed("http://10.0.0.5/a.whl", "https://index.example/")  # never less than the page had
    require_allowed("https://files.example/a.whl", None)


def test_a_broken_record_or_state_is_none(
    paths: Paths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Index({"": {"xllamacpp": [offer(tmp_path)]}}) as index:
        name = bring(paths, index.url).record.name
    file = records.folder(paths, name) / records.RECORD
    good = file.read_text()
    for broken in ("", "{", "[" * 9_999, good.replace(name, "../../etc"), good.replace('"v"', '"w"')):
        file.write_text(broken)
        assert records.installed(paths) == ()
    file.write_text(good)
    assert len(records.installed(paths)) == 1
    (paths.engines / records.STATE).write_text('{"use": 3}')
    assert records.read_state(paths) == records.State()
    assert "can't be used" in caplog.text


def test_no_more_than_so_many_are_kept(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BUILDS", 1)
    with Index(
        {"vulkan": {"xllamacpp": [offer(tmp_path)]}, "cu128": {"xllamacpp": [offer(tmp_path)]}}
    ) as index:
        bring(paths, index.url)
        with pytest.raises(EngineError, match="more are not kept") as caught:
            bring(paths, index.url, CUDA)
    assert f"vulkan-{VERSION}" in str(caught.value.hint)


def test_a_name_of_a_build_never_leads_out(paths: Paths) -> None:
    for name in ("../x", "a/b", "", ".new-1", "a\\b", "/etc"):
        with pytest.raises(ApplianceError):
            using.remove(paths, name, forget=False)
        with pytest.raises(EngineError):
            records.folder(paths, name)
