"""`python -m tui`: the UI alone, for a daemon that runs. `appliance` does the same and starts one first."""

from __future__ import annotations

import argparse
import os
import sys

SMOKE_S = 2.0


def main(argv: list[str] | None = None) -> int:
    """Parse, prepare the environment, then import and run the UI."""
    parser = argparse.ArgumentParser(prog="python -m tui", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help=f"leave by itself after {SMOKE_S:g} s")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    options = parser.parse_args(argv)

    from tui.terminal import prepare

    prepare(os.environ)  # before Textual is imported: it reads these once

    from appliance import paths
    from tui.run import run

    return run(
        paths.find().make(), ascii_only=options.ascii or None, smoke_s=SMOKE_S if options.smoke else None
    )


if __name__ == "__main__":
    sys.exit(main())
