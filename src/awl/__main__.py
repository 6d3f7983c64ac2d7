"""`python -m awl`, and the script `awl`."""

from __future__ import annotations

import gc
import os
import sys

from awl import __version__


def main() -> None:
    """Run the command line, and exit with its code."""
    if sys.argv[1:] == ["--version"]:  # what scripts ask in passing waits for no library
        try:
            os.write(1, f"awl {__version__}\n".encode())
        except OSError as error:
            sys.exit(f"awl: {error.strerror}")
        return
    try:
        from awl.cli import run
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        sys.exit("awl: the command line needs more: run `pip install click rich prompt_toolkit`")
    gc.freeze()  # what was imported is no garbage, and an interpreter that ends looks twice for it
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
