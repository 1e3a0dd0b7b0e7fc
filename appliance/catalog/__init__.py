"""`models.toml` as validated, frozen models: which models exist, where their bytes come from, and their pins.

The package ships one file; a user's own file adds entries or replaces those of the same id. Nothing here
touches the network or the model folder.
"""

from __future__ import annotations

from appliance.catalog.entries import (
    File,
    FileSource,
    HfSource,
    Model,
    Package,
    Role,
    Source,
    UrlSource,
    Use,
    Variant,
    WheelSource,
)
from appliance.catalog.files import load, parse
from appliance.catalog.lookup import DEFAULT_LIMIT, Catalog, ModelRef, refs_of

__all__ = [
    "DEFAULT_LIMIT",
    "Catalog",
    "File",
    "FileSource",
    "HfSource",
    "Model",
    "ModelRef",
    "Package",
    "Role",
    "Source",
    "UrlSource",
    "Use",
    "Variant",
    "WheelSource",
    "load",
    "parse",
    "refs_of",
]
