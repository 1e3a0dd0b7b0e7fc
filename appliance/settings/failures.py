"""What is wrong with a value, in words: which key, why, and how to mend it."""

from __future__ import annotations

import json

from pydantic import ValidationError

from appliance.errors import SettingsError, UsageError
from appliance.settings.model import keys, section


def argument_error(error: ValidationError) -> UsageError:
    """A value that came from the command line or the control plane, not from a file."""
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    return UsageError(
        f"The {name} of the remote can't be used.",
        cause=first["msg"].removeprefix("Value error, "),
        hint=_FORMS.get(name),
    )


_FORMS = {
    "name": "Letters, digits, `_`, `.` and `-`, at most 64.",
    "url": "Like http://10.0.0.5:8000/v1",
    "api_key_env": "The name of an environment variable, like VLLM_KEY.",
}


def settings_error(error: ValidationError, where: str) -> SettingsError:
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"] if isinstance(part, (str, int)))
    return SettingsError(
        f"The setting {key} in {where} can't be used.",
        cause=first["msg"].removeprefix("Value error, "),
        hint=_remedy(key),
    )


def _remedy(key: str) -> str:
    if key not in keys():
        return "Take the line out or correct it; the README lists sections and keys."
    part, _, name = key.partition(".")
    default = section(part)().model_dump(mode="json")[name]
    shown = default if isinstance(default, str) else json.dumps(default)
    return f"Correct it: `appliance config set {key} VALUE` (the default is {shown}), or take the line out."
