"""`appliance models ...`: one file per group of commands."""

from __future__ import annotations

from appliance.cli.models.group import models

__all__ = ["models"]
