"""Settings: every default in one place, the environment wins, an error names the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance import settings
from appliance.errors import SettingsError


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_without_a_file_the_documented_defaults_hold(tmp_path: Path) -> None:
    loaded = settings.load(tmp_path / "absent.toml", env={})
    assert (loaded.server.host, loaded.server.port) == ("127.0.0.1", 8417)
    assert loaded.planning.reserve == 512 * 2**20
    assert (loaded.routing.policy, loaded.routing.max_wait, loaded.routing.max_queue) == (
        "local-first",
        8.0,
        64,
    )
    assert (loaded.governor.slow, loaded.governor.throttle_margin) == (0.8, 2.0)
    assert (loaded.governor.hold, loaded.governor.dwell) == (5.0, 60.0)
    assert loaded.remotes == ()


def test_the_environment_wins_over_the_file_and_is_named_as_source(tmp_path: Path) -> None:
    file = write(tmp_path, "[server]\nport = 1234\n")
    env = {
        "APPLIANCE_SERVER__PORT": "5678",
        "APPLIANCE_HOME": "/x",
        "APPLIANCE_SERVER__ALLOWED_HOSTS": "a, b",
    }
    assert settings.load(file, env).server.port == 5678
    found = {entry.key: entry for entry in settings.entries(file, env)}
    assert found["server.port"].source == "APPLIANCE_SERVER__PORT"
    assert found["server.allowed_hosts"].value == ["a", "b"]
    assert found["server.host"].source == "default"


def test_sizes_and_durations_are_read_and_shown_as_people_write_them(tmp_path: Path) -> None:
    file = write(tmp_path, '[planning]\nreserve = "1GiB"\n[models]\nkeep_alive = "90s"\n')
    loaded = settings.load(file, env={})
    assert (loaded.planning.reserve, loaded.models.keep_alive) == (2**30, 90.0)
    found = {entry.key: entry.value for entry in settings.entries(file, env={})}
    assert (found["planning.reserve"], found["models.keep_alive"]) == ("1GiB", "90s")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[server]\nport = 99999\n", "server.port"),
        ("[server]\nprot = 1\n", "server.prot"),
        ('[routing]\npolicy = "maybe"\n', "routing.policy"),
        ('[planning]\nreserve = "much"\n', "planning.reserve"),
        ('[[remotes]]\nname = "a"\nurl = "ftp://x"\n', "remotes.0.url"),
        ('[overrides."a"]\ndraught = "b"\n', "overrides.a.draught"),
        ('[overrides."a"]\nlora = [{ file = "/x" }]\n', "overrides.a.lora.0.sha256"),
        (
            '[overrides."a"]\nlora = [{ file = "x", sha256 = "' + "ab" * 32 + '" }]\n',
            "overrides.a.lora.0.file",
        ),
        ('[overrides."a"]\nlora = [{ file = "/x", sha256 = "ab" }]\n', "overrides.a.lora.0.sha256"),
        (
            '[overrides."a"]\nlora = [{ file = "/x", sha256 = "' + "ab" * 32 + '", scale = nan }]\n',
            "overrides.a.lora.0.scale",
        ),
        ('[[remotes]]\nname = "a"\nurl = "http://x"\napi_key_env = "not a name"\n', "remotes.0.api_key_env"),
    ],
)
def test_an_error_names_the_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(write(tmp_path, text), env={})
    assert key in caught.value.message


@pytest.mark.parametrize(
    "mirror",
    [
        "mirror.example",
        "ftp://m",
        "https://me:secret@m",
        "https://m?k=secret",
        "http://[::1",
        "http://m:99999",
    ],
)
def test_a_mirror_is_an_address_and_no_secret_is_shown(tmp_path: Path, mirror: str) -> None:
    file = write(tmp_path, f'[downloads]\nmirrors = ["https://good.example/hf", "{mirror}"]\n')
    with pytest.raises(SettingsError, match=r"downloads\.mirrors") as caught:
        settings.load(file, env={})
    assert "mirror 2" in (caught.value.cause or "")
    assert "secret" not in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        settings.from_text("downloads.mirrors", mirror)
    assert "me:" not in str(caught.value)


def test_what_a_model_is_started_with_is_shown_by_model(tmp_path: Path) -> None:
    adapter = '{ file = "~/a.gguf", sha256 = "' + "AB" * 32 + '", scale = 0.5 }'
    file = write(
        tmp_path, f'[overrides."qwen3-8b:Q4_K_M"]\nlora = [{adapter}]\n[overrides."b"]\ndraft = "c"\n'
    )
    loaded = settings.load(file, env={}).overrides
    assert (loaded["qwen3-8b:Q4_K_M"].lora[0].sha256, loaded["b"].draft) == ("ab" * 32, "c")
    found = {entry.key: entry for entry in settings.entries(file, env={}) if "overrides" in entry.key}
    assert {key: entry.value for key, entry in found.items()} == {
        'overrides."qwen3-8b:Q4_K_M".lora': [{"file": "~/a.gguf", "sha256": "ab" * 32, "scale": 0.5}],
        'overrides."b".draft': "c",
    }
    assert {entry.source for entry in found.values()} == {str(file)}
    with pytest.raises(SettingsError, match="can't be set here"):
        settings.from_text('overrides."b".draft', "d")


def test_settings_are_frozen(tmp_path: Path) -> None:
    loaded = settings.load(tmp_path / "absent.toml", env={})
    with pytest.raises(ValueError, match="frozen"):
        loaded.server.port = 1  # type: ignore[misc]
