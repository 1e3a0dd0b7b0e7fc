"""The `appliance` command in the process of the test: a tenth of a second, where a process takes one."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

from appliance.cli.main import main
from tests.end_to_end.appliance import Done, Home


class Indoors(Home):
    """A user without a terminal, signals and a daemon: these take a process."""

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdin: str = "", timeout_s: float = 120
    ) -> Done:
        """Run a command to its end."""
        out, err = io.StringIO(), io.StringIO()
        code: object = 0
        with (
            mock.patch.dict(os.environ, self.environment({"COLUMNS": "120", **(env or {})}), clear=True),
            mock.patch("sys.stdin", io.StringIO(stdin)),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main(list(arguments))
            except SystemExit as end:
                code = end.code
        assert isinstance(code, int)
        return Done(code, out.getvalue(), err.getvalue())
