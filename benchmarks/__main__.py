"""The one command: `uv run --group bench python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from benchmarks import (
    append,
    forks,
    imports,
    lists,
    memory,
    overhead,
    processes,
    resume,
    searches,
    stores,
)
from benchmarks.machine import IN_MEMORY, this_machine
from benchmarks.report import PAGE, Report, draw, markdown, write

MEASURES = {
    "append": append.measure,
    "resume": resume.measure,
    "list": lists.measure,
    "fork": forks.measure,
    "search": searches.measure,
    "import": imports.measure,
    "process": processes.measure,
    "memory": memory.measure,
    "agent": overhead.measure,
    "stores": stores.measure,
}
EXAMPLES = """
Examples:
  python -m benchmarks --quick              all of it, smaller, in about three minutes
  python -m benchmarks --only append        one measure
  python -m benchmarks --write              all, and into docs/performance.md with plots

Other programs are installed into environments of their own below ~/.cache/awl-benchmarks on the
first run. AWL_BENCH_DIR is the folder to measure in, which should be on a disk.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description="Measure awl beside its floors and other programs, in one run.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(MEASURES),
        metavar="NAME",
        help=f"measure only this: {', '.join(MEASURES)}",
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer runs")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw plots into a folder")
    parser.add_argument(
        "--write", action="store_true", help=f"write tables and plots into docs/{PAGE.name}"
    )
    chosen = parser.parse_args()
    if chosen.write and (chosen.only or chosen.quick):
        parser.error("--write takes what one whole run found: leave out --only and --quick")
    if (chosen.write or chosen.plots) and importlib.util.find_spec("matplotlib") is None:
        parser.error("plots need matplotlib: uv run --group bench python -m benchmarks")
    where = os.environ.get("AWL_BENCH_DIR")
    if where and not Path(where).is_dir():
        parser.error(f"AWL_BENCH_DIR is no folder: {where}")
    report = _measured(dict.fromkeys(chosen.only or MEASURES), chosen.quick)
    if chosen.json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        print(markdown(report), end="")
    if chosen.plots:
        draw(report.curves(), chosen.plots)
    if chosen.write:
        write(report)


def _measured(names: Iterable[str], quick: bool) -> Report:
    machine, found = this_machine(), {}
    if machine.disk in IN_MEMORY:
        print(
            f"awl benchmarks: measured in memory ({machine.disk}), where a sync costs nothing:"
            " set AWL_BENCH_DIR to a folder on a disk",
            file=sys.stderr,
        )
    for name in names:
        print(f"{name} …", end="", file=sys.stderr, flush=True)
        begun = time.perf_counter()
        found[name] = MEASURES[name](quick)
        print(f" {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return Report(machine, quick, found)


if __name__ == "__main__":
    main()
