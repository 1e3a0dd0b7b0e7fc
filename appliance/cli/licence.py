"""The licence gate of the command line: a person at a terminal is asked, a script is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from appliance.cli.output import remark
from appliance.errors import LicenseNotAccepted
from appliance.text import clean_line

if TYPE_CHECKING:
    from appliance.catalog import ModelRef
    from appliance.operations.models import Library

T = TypeVar("T")

accept_option = click.option(
    "--accept-license", is_flag=True, help="Accept a licence that limits what the model may be used for."
)


def with_licence(call: Callable[[bool], T], accepted: bool) -> T:
    """What `call(accepted)` gives; when a licence stands in the way, the person is asked once.

    Raises LicenseNotAccepted when the answer is no, or when there is nobody to ask.
    """
    try:
        return call(accepted)
    except LicenseNotAccepted as error:
        if accepted or not agrees(error):
            raise
    return call(True)


async def allowed(shelf: Library, name: str, accepted: bool) -> ModelRef:
    """The model of a name, once its licence is accepted. Raises UnknownModel or LicenseNotAccepted."""
    from appliance.operations import catalog
    from appliance.operations.plans import family

    ref = await family.resolve(shelf, name)
    catalog.require_license(shelf, ref, accepted)
    return ref


def agrees(error: LicenseNotAccepted) -> bool:
    """Ask the person. False where nobody is there to ask."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    remark(clean_line(error.message))
    if error.cause:
        remark(f"  {clean_line(error.cause)}")
    return click.confirm("Do you accept it?", default=False, err=True)
