"""The command `appliance`: parse, call, render. Subcommands are imported when they are used."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn

import click

from appliance import __version__
from appliance.cli.ends import INTERRUPTED, OutputFailed
from appliance.cli.lazy import LazyGroup
from appliance.errors import ApplianceError, UsageError

COMMANDS = {
    "up": ("appliance.cli.up", "up", "Serve a model until Ctrl-C (or in the background)."),
    "down": ("appliance.cli.lifecycle", "down", "Stop the daemon."),
    "status": ("appliance.cli.lifecycle", "status", "What runs, how it does, and what to know."),
    "logs": ("appliance.cli.logs", "logs", "The engines' log, and what happened to them."),
    "env": ("appliance.cli.lifecycle", "env", "Lines that point a shell's scripts at the appliance."),
    "chat": ("appliance.cli.chat", "chat", "Ask the served model, line by line."),
    "models": ("appliance.cli.models", "models", "List, fetch, check and remove models."),
    "plan": ("appliance.cli.plan", "plan", "How a model would be split here, and why."),
    "engines": ("appliance.cli.engines", "engines", "Engines found here and the devices each sees."),
    "remote": ("appliance.cli.remote", "remote", "Endpoints that may answer instead of this machine."),
    "config": ("appliance.cli.config", "config", "Settings: where they are, what holds, change one."),
    "bench": ("appliance.cli.bench", "bench", "Measure what this machine reaches."),
    "replay": ("appliance.cli.replay", "replay", "What would have happened, by a recorded or written trace."),
    "doctor": ("appliance.cli.doctor", "doctor", "Examine this installation."),
}


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", prog_name="appliance")
@click.option("--debug", is_flag=True, help="Show the traceback of a failure; may stand anywhere.")
@click.pass_context
def appliance(ctx: click.Context, debug: bool) -> None:
    """A laptop or desktop as a local inference appliance.

    Without a command it opens the terminal UI, and starts the daemon when none runs.
    """
    if ctx.invoked_subcommand is None:
        from appliance.cli.ui import open_ui

        ctx.exit(open_ui())


def main(arguments: list[str] | None = None) -> None:
    """The entry point. Ends the process with the exit code of the contract."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]  # it may stand anywhere
    try:
        code = appliance.main(arguments, prog_name="appliance", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        if "--json" in arguments:
            _print_json(UsageError(error.format_message(), hint=_hint(error)))
        sys.exit(error.exit_code)
    except ApplianceError as error:
        if debug:
            raise
        _show(error, as_json="--json" in arguments)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OutputFailed as error:
        _output_failed(error)
    except Exception as error:
        if debug:
            raise
        unexpected = ApplianceError(
            "Something went wrong that should not have.",
            cause=f"{type(error).__name__}: {error}",
            hint="Run the same command with --debug and report what it prints.",
        )
        _show(unexpected, as_json="--json" in arguments)
        sys.exit(unexpected.exit_code)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _output_failed(OutputFailed(error))
    sys.exit(code if isinstance(code, int) else 0)


def _output_failed(error: OutputFailed) -> NoReturn:
    """Our own stdout is closed (`| head`) or its disk is full: nothing more can be said there."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's own exit is quiet
    if error.broken_pipe:
        sys.exit(0)
    print(f"✖ The output can't be written: {error}", file=sys.stderr)
    sys.exit(1)


def _show(error: ApplianceError, as_json: bool) -> None:
    """What happened, why, what to do; with `--json` also as a document on stdout."""
    from appliance.text import clean

    print(f"✖ {clean(error.message)}", file=sys.stderr)
    for label, text in (("Why", error.cause), ("Do", error.hint)):
        if text:
            print(f"  {label}: {clean(text)}", file=sys.stderr)
    lines: Any = getattr(error, "lines", ())
    if lines:
        print("  Last lines:", file=sys.stderr)
        for line in lines:
            print(f"    {clean(line)}", file=sys.stderr)
    if as_json:
        _print_json(error)


def _print_json(error: ApplianceError) -> None:
    """The error's document on stdout."""
    import json

    try:
        print(json.dumps({"error": error.to_json()}), flush=True)
    except OSError as failed:
        _output_failed(OutputFailed(failed))


def _hint(error: click.ClickException) -> str | None:
    """Where the words are explained that were not understood."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return None if ctx is None else f"`{ctx.command_path} --help` says what there is."


if __name__ == "__main__":
    main()
