"""What saved prompts are to the daemon: limits, what lies on the disk, one engine's life."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from appliance.catalog import ModelRef
from appliance.engines import Build, Endpoint, Launch, slots

log = logging.getLogger("appliance.prompts")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long others wait, in seconds."""

    save_s: float = 10.0
    """A stop, for what is saved."""
    restore_s: float = 20.0
    """A start, for what is given back."""
    prove_s: float = slots.proof.LIMIT_S
    """The first start of a kind of engine, for its proof."""
    margin: int = slots.saving.MARGIN
    """Bytes of the disk that are left to others."""


@dataclass(frozen=True, slots=True)
class PromptCacheSnapshot:
    """What lies on the disk."""

    enabled: bool
    files: int = 0
    n_bytes: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Life:
    """One engine as it was when it became ready."""

    key: slots.Key
    endpoint: Endpoint
    given: slots.Given = field(default_factory=slots.Given)
    why_not: str | None = None
    """Why nothing is saved; None: it is."""
    since: float = 0.0


def key_for(build: Build, launch: Launch, ref: ModelRef) -> slots.Key:
    """Looks at the engine's files: call it in a thread."""
    return slots.key_of(build, launch, [file.sha256 for file in ref.variant.files if file.role == "model"])


@asynccontextmanager
async def told(what: str) -> AsyncIterator[None]:
    """Whatever goes wrong becomes a line in the log: a saved prompt is worth no failed start or stop."""
    try:
        yield
    except TimeoutError:
        log.warning("%s: it took too long", what)
    except slots.SlotError as error:
        log.warning("%s: %s", what, error.message)
    except OSError as error:
        log.warning("%s: %s", what, error.strerror)
    except Exception:
        log.exception("%s", what)
