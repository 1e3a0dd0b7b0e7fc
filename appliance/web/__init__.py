"""Fetching bytes over HTTP from a thread: trust store, proxies, redirects and tokens by one set of rules."""
