"""The 400 for one field of a request."""

from __future__ import annotations

from typing import NoReturn

from appliance.errors import Rejected


class BadField(Rejected):
    """A request field that can't be honoured; `param` names it."""

    def __init__(self, message: str, param: str, hint: str | None = None) -> None:
        super().__init__(message, reason="reject.unsupported", http_status=400, hint=hint)
        self.param = param


def refuse(message: str, param: str, hint: str | None = None) -> NoReturn:
    """Raises BadField."""
    raise BadField(message, param, hint)
