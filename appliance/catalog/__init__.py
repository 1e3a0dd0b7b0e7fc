"""`models.toml` as validated, frozen models: which models exist, where their bytes come from, and their pins.

The package ships one file; a user's own file adds entries or replaces those of the same id; `pins.toml` adds
variants that were pinned at their first use. Nothing here touches the network or the model folder.
"""

from __future__ import annotations

from appliance.catalog.entries import (
    File,
    FileSource,
    HfSource,
    Model,
    Package,
    Pin,
    Role,
    Source,
    UrlSource,
    Use,
    Variant,
    WheelSource,
)
from appliance.catalog.files import load, package, parse, parse_pins, read_text
from appliance.catalog.live import LiveCatalog
from appliance.catalog.lookup import DEFAULT_LIMIT, Catalog, ModelRef, refs_of, repos_of
from appliance.catalog.words import reason

__all__ = [
    "DEFAULT_LIMIT",
    "Catalog",
    "File",
    "FileSource",
    "HfSource",
    "LiveCatalog",
    "Model",
    "ModelRef",
    "Package",
    "Pin",
    "Role",
    "Source",
    "UrlSource",
    "Use",
    "Variant",
    "WheelSource",
    "load",
    "package",
    "parse",
    "parse_pins",
    "read_text",
    "reason",
    "refs_of",
    "repos_of",
]
