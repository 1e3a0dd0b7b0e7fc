"""What the Hub (or a mirror of it) says: addresses, token, commits, sizes, hashes, quants and search."""

from __future__ import annotations

from appliance.hub.address import endpoint, file_url, mirror_of, token
from appliance.hub.aside import aside
from appliance.hub.ask import DEADLINE_S, Found, Repo, look, search
from appliance.hub.names import HubName, is_commit, is_repo, of_url, parse
from appliance.hub.quants import Quant, RepoFile, grouped, is_projector, label_of, part_of, stem_of

__all__ = [
    "DEADLINE_S",
    "Found",
    "HubName",
    "Quant",
    "Repo",
    "RepoFile",
    "aside",
    "endpoint",
    "file_url",
    "grouped",
    "is_commit",
    "is_projector",
    "is_repo",
    "label_of",
    "look",
    "mirror_of",
    "of_url",
    "parse",
    "part_of",
    "search",
    "stem_of",
    "token",
]
