"""Fetching bytes over HTTP from a thread: trust store, proxies, redirects and tokens by one set of rules.

The whole interface of this room is what is exported here.
"""

from __future__ import annotations

from appliance.web.addresses import origin, shown
from appliance.web.answer import Answer
from appliance.web.client import Client
from appliance.web.types import Broken, Patience

__all__ = ["Answer", "Broken", "Client", "Patience", "origin", "shown"]
