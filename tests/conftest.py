"""Fixtures that all rooms share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import models

for _name in list(os.environ):
    if _name == "NO_COLOR" or (_name.startswith("APPLIANCE_") and _name != "APPLIANCE_TEST_CACHE"):
        del os.environ[_name]  # a developer's own settings must not decide a test


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The verified SmolLM2 135M file."""
    return models.smollm2()


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """The verified Gemma 3 270M file."""
    return models.gemma3_270m()
