"""`config.toml` as one validated, frozen model, with every default in one place."""

from appliance.settings.failures import argument_error
from appliance.settings.files import Entry, entries, from_text, load, read_text, text_of, validate_text
from appliance.settings.model import (
    Downloads,
    Engine,
    EngineChoice,
    Goals,
    Governor,
    LoraFile,
    Models,
    Override,
    Planning,
    PromptCache,
    RemoteSettings,
    Routing,
    Server,
    Settings,
    keys,
)

__all__ = [
    "Downloads",
    "Engine",
    "EngineChoice",
    "Entry",
    "Goals",
    "Governor",
    "LoraFile",
    "Models",
    "Override",
    "Planning",
    "PromptCache",
    "RemoteSettings",
    "Routing",
    "Server",
    "Settings",
    "argument_error",
    "entries",
    "from_text",
    "keys",
    "load",
    "read_text",
    "text_of",
    "validate_text",
]
