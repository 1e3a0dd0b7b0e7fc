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


def settings_error(error: ValidationError, where: str, part: str | None = None) -> SettingsError:
    """`part`: the section that was checked by itself, whose keys the error names without it."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = _key(first["loc"] if part is None else (part, *first["loc"]))
    return SettingsError(
        f"The setting {key} in {where} can't be used." if part is None else f"{where} can't be used.",
        cause=first["msg"].removeprefix("Value error, "),
        hint=_remedy(key, lines=part is None),
    )


def _key(where: tuple[int | str, ...]) -> str:
    """What a person wrote, without the type that was tried for it (`models.memory.constrained-int`)."""
    setting = ".".join(map(str, where[:2]))
    return setting if setting in keys() else ".".join(map(str, where))


def _remedy(key: str, *, lines: bool) -> str:
    """`lines`: it stands in a file already."""
    if key not in keys():
        return "Take the line out or correct it; the README lists sections and keys."
    part, _, name = key.partition(".")
    default = section(part)().model_dump(mode="json")[name]
    shown = default if isinstance(default, str) else json.dumps(default)
    end = ", or take the line out." if lines else "."
    return f"Correct it: `appliance config set {key} VALUE` (the default is {shown}){end}"
