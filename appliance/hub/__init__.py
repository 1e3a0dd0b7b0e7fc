"""What the Hub (or a mirror of it) says: addresses and token, and later commits, sizes, hashes and search."""

from __future__ import annotations

from appliance.hub.address import endpoint, file_url, token

__all__ = ["endpoint", "file_url", "token"]
