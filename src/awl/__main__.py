"""`python -m awl`, and the script `awl`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and exit with its code."""
    try:
        from awl.cli import run
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        sys.exit("awl: the command line needs more: run `pip install click rich prompt_toolkit`")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
