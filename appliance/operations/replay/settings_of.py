"""Under which settings a trace is replayed: a file's, those of its bundle, else those of this machine."""

from __future__ import annotations

from pathlib import Path

from appliance import settings
from appliance.errors import UsageError
from appliance.operations.replay.source import SETTINGS, Source
from appliance.operations.replay.under import Under
from appliance.paths import Paths


def under_of(file: Path | None, source: Source, paths: Paths) -> Under:
    """Raises UsageError or SettingsError, which names the key.

    A file that was named is taken as it is, without the environment's variables: it is a question, not this
    machine's configuration.
    """
    if file is not None:
        if not file.is_file():
            raise UsageError(
                f"There is no file {file}.", hint="`appliance config path` says where this machine's is."
            )
        return Under.of(settings.validate_text(settings.read_text(file), file), str(file))
    if source.settings is not None:
        inside = Path(f"{source.name}/{SETTINGS}")
        return Under.of(settings.validate_text(source.settings, inside), "the bundle")
    return Under.of(settings.load(paths.config_file), "this machine's")
