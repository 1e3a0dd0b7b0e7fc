"""`config.toml` is edited without losing a comment, and never left in a state that would not load."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance import settings
from appliance.errors import SettingsError, UsageError
from appliance.operations import config

TEXT = """# mine
[server]
port = 9000  # the printer uses 8417

[routing]
max_wait = "3s"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "config.toml"
    found.write_text(TEXT, encoding="utf-8")
    return found


def test_setting_a_key_keeps_comments_and_other_keys(file: Path) -> None:
    entry = config.set_value(file, "routing.max_wait", "12s")
    assert (entry.value, entry.source) == ("12s", str(file))
    assert file.read_text(encoding="utf-8") == TEXT.replace('"3s"', '"12s"')


def test_setting_a_key_of_a_new_section_adds_it(file: Path) -> None:
    config.set_value(file, "models.keep_alive", "45m")
    assert settings.load(file, env={}).models.keep_alive == 45 * 60
    assert file.read_text(encoding="utf-8").startswith("# mine\n")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("server.port", "70000"),
        ("server.port", "http"),
        ("routing.policy", "sometimes"),
        ("planning.reserve", "lots"),
        ("server.prot", "1"),
        ("nonsense", "1"),
    ],
)
def test_a_value_that_cannot_be_used_changes_nothing(file: Path, key: str, value: str) -> None:
    with pytest.raises(SettingsError):
        config.set_value(file, key, value)
    assert file.read_text(encoding="utf-8") == TEXT


def test_a_broken_file_is_reported_and_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[server\nport = 1\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="not valid TOML"):
        config.set_value(file, "server.port", "9000")
    assert file.read_text(encoding="utf-8") == "[server\nport = 1\n"


def test_remotes_are_added_and_removed_and_never_silently_replaced(file: Path) -> None:
    config.add_remote(file, "a", "http://10.0.0.5:8000/v1", kind="vllm", api_key_env="K", models={"x": "X/x"})
    config.add_remote(file, "b", "https://b.example/v1", kind="openai", api_key_env="", models={})
    with pytest.raises(UsageError, match="already"):
        config.add_remote(file, "a", "http://10.0.0.6:8000/v1", kind="vllm", api_key_env="", models={})
    found = {remote.name: remote for remote in settings.load(file, env={}).remotes}
    assert set(found) == {"a", "b"}
    assert (found["a"].url, found["a"].models) == ("http://10.0.0.5:8000/v1", {"x": "X/x"})
    config.remove_remote(file, "a")
    config.remove_remote(file, "b")
    assert settings.load(file, env={}).remotes == ()
    assert "the printer uses 8417" in file.read_text(encoding="utf-8")


def test_a_key_in_the_url_is_refused_before_it_reaches_the_disk(file: Path) -> None:
    with pytest.raises(UsageError, match="must not stand in the URL"):
        config.add_remote(
            file, "a", "http://user:hunter2@10.0.0.5/v1", kind="vllm", api_key_env="", models={}
        )
    assert "hunter2" not in file.read_text(encoding="utf-8")


def test_removing_an_unknown_remote_names_the_known_ones(file: Path) -> None:
    config.add_remote(file, "lab", "http://10.0.0.5/v1", kind="vllm", api_key_env="", models={})
    with pytest.raises(SettingsError) as caught:
        config.remove_remote(file, "lap")
    assert "lab" in str(caught.value)


def test_a_limit_of_nothing_is_refused_in_words_and_no_time_at_all_is_said_in_seconds(file: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        config.set_value(file, "models.memory", "0")
    assert caught.value.message == "models.memory = '0' can't be used."
    assert caught.value.cause == "it must be a size above 0, or auto"
    assert "config set models.memory" in (caught.value.hint or "")
    assert config.set_value(file, "models.keep_alive", "0s").value == "0s"


def test_a_key_is_named_as_it_is_written_not_by_the_type_that_was_tried(file: Path) -> None:
    file.write_text('[engine]\nctx = "x"\n', encoding="utf-8")
    with pytest.raises(SettingsError, match=r"The setting engine\.ctx in "):
        settings.load(file, env={})
