"""Fixtures of the gateway's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway import house as houses


@pytest.fixture
async def house() -> AsyncIterator[houses.House]:
    """A gateway with one slot, a queue of two, an engine, and a remote that is down."""
    async with houses.house() as made:
        yield made
