"""The catalog as a user works with it: search, show, add, pin at first use, accept a licence.

`search` needs no network. `search_hub` asks the Hub, `show` does when asked to, and `resolve` only for a
quant that no catalog lists.
"""

from __future__ import annotations

from appliance.operations.catalog.adding import add
from appliance.operations.catalog.finding import search, search_hub
from appliance.operations.catalog.licences import require_license
from appliance.operations.catalog.resolving import resolve
from appliance.operations.catalog.showing import show

__all__ = ["add", "require_license", "resolve", "search", "search_hub", "show"]
