"""What the Hub's library raises, as errors of ours. The order matters: its classes derive from each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from appliance.errors import ApplianceError, Gated, HubError, NotOnHub
from appliance.text import clean_line

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

_ELSEWHERE = "Everything that is in the catalog or on this disk works without it."


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, for the error's words."""

    base: str
    repo: str | None = None
    revision: str | None = None
    path: str | None = None
    token: bool = False
    """Whether a token was sent."""

    @property
    def host(self) -> str:
        return urlsplit(self.base).hostname or self.base

    @property
    def page(self) -> str:
        """Where a person sees the repository."""
        return f"{self.base}/{self.repo}" if self.repo else self.base

    @property
    def what(self) -> str:
        return self.repo or "the search"


def translated(error: Exception, asked: Asked) -> ApplianceError | None:
    """The error of ours for one of the library or its client; None for one that is no failure of the Hub."""
    from huggingface_hub import errors as theirs

    from appliance.hub.client import Broken, Refused

    if isinstance(error, ApplianceError):
        return error
    if isinstance(error, Broken):
        return HubError(
            f"{clean_line(error.host, 120)} can't be reached.",
            cause=f"{error.why[:1].upper()}{error.why[1:]}.",
            hint=f"Check the network, the proxy and HF_ENDPOINT. {_ELSEWHERE}",
        )
    if isinstance(error, Refused):
        return HubError(clean_line(str(error), 300), hint="Check HF_ENDPOINT and the proxy.")
    if isinstance(error, theirs.HfHubHTTPError):
        return _of_status(error, asked)
    if isinstance(error, ValueError | KeyError | TypeError | AttributeError | RecursionError):
        return not_a_hub(asked, "Its answer does not have the form of the Hub's.")
    return None


def not_a_hub(asked: Asked, cause: str) -> HubError:
    """The error for an endpoint that answers, but not as the Hub does."""
    return HubError(
        f"{asked.host} does not answer like the Hub.",
        cause=cause,
        hint="HF_ENDPOINT must name the Hub or a mirror that offers its API; a login page of a network "
        "answers so, too.",
    )


def _of_status(error: HfHubHTTPError, asked: Asked) -> HubError:
    from huggingface_hub import errors as theirs

    status = error.response.status_code
    if isinstance(error, theirs.GatedRepoError):
        return Gated(
            f"{asked.repo} is gated: its terms have to be accepted first.",
            cause="The token's account has not been let in." if asked.token else "No token is set.",
            hint=f"Accept the terms at {asked.page}, then set HF_TOKEN to a token of that account.",
        )
    if isinstance(error, theirs.DisabledRepoError):
        return HubError(f"{asked.repo} is disabled on {asked.host}.", hint=f"See {asked.page}.")
    if isinstance(error, theirs.RevisionNotFoundError):
        return NotOnHub(
            f"{asked.repo} has no revision {clean_line(asked.revision or 'main', 80)!r}.",
            hint=f"See {asked.page}; without @REV its main branch is meant.",
        )
    if isinstance(error, theirs.RemoteEntryNotFoundError):
        return NotOnHub(
            f"{asked.repo} has no file {clean_line(asked.path or '', 200)!r}.", hint=f"See {asked.page}."
        )
    if status == 401:
        return _unauthorized(asked)
    if isinstance(error, theirs.RepositoryNotFoundError) or status in (404, 410):
        return NotOnHub(
            f"{asked.host} has no repository {asked.repo}, or it is private."
            if asked.repo
            else f"{asked.host} offers no search.",
            cause=None if asked.token else "No token is set, and private ones are hidden without.",
            hint="Check the spelling (OWNER/NAME)" + ("." if asked.token else ", or set HF_TOKEN."),
        )
    return _of_other_status(error, asked, status)


def _unauthorized(asked: Asked) -> HubError:
    if asked.token:
        return HubError(
            f"{asked.host} does not accept the token.",
            cause="It may have expired, or lack the right to read this repository.",
            hint="Set HF_TOKEN to a valid token, or unset it: public repositories need none.",
        )
    return NotOnHub(
        f"{asked.host} has no {asked.what}, or wants a token for it.",
        cause="It answers the same for what does not exist and for what is private.",
        hint="Check the spelling (OWNER/NAME), or set HF_TOKEN.",
    )


def _of_other_status(error: HfHubHTTPError, asked: Asked, status: int) -> HubError:
    said = clean_line(error.server_message or "", 200) or None
    if status == 429:
        seconds = _wait_of(error)
        return HubError(
            f"{asked.host} says that it was asked too often.",
            cause=said,
            hint=f"Try again in {seconds} s." if seconds else "Try again in some minutes.",
        )
    if status == 403:
        return HubError(
            f"{asked.host} refuses {asked.what}.",
            cause=said,
            hint=f"Check what the token may do, and {asked.page}.",
        )
    return HubError(
        f"{asked.host} answered {asked.what} with status {status}.",
        cause=said,
        hint=f"Try again later. {_ELSEWHERE}" if status >= 500 else "Check HF_ENDPOINT and the name.",
    )


def _wait_of(error: HfHubHTTPError) -> int | None:
    """Seconds that the server asks to wait: its `ratelimit` header, else Retry-After in seconds."""
    from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

    headers = error.response.headers
    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds
    after = headers.get("Retry-After", "").strip()
    return int(after) if after.isascii() and after.isdigit() and len(after) < 7 else None
