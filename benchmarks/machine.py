"""The machine that figures were taken on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks.corpus import folder

COMMIT = ("git", "describe", "--always", "--dirty", "--exclude=*")
"""The short id of the commit, with `-dirty` when the tree has changes."""
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


class Machine(msgspec.Struct, frozen=True):
    """What it is, and what ran on it."""

    processor: str
    cores: int
    memory: int
    system: str
    disk: str
    python: str
    awl: str
    commit: str
    time: str

    def __str__(self) -> str:
        memory = f"{self.memory / 1e9:.0f} GB" if self.memory else "unknown memory"
        return (
            f"{self.processor}, {self.cores} cores, {memory}, {self.system}, {self.disk};"
            f" Python {self.python}, awl {self.awl} ({self.commit}), {self.time}"
        )


def this_machine() -> Machine:
    pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
    with folder() as root:
        disk = _disk(root)
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory=pages * os.sysconf("SC_PAGE_SIZE"),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        disk=disk,
        python=sys.version.split()[0],
        awl=version("awl-agent"),
        commit=_output(*COMMIT) or "no commit",
        time=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", info.read_text(), re.M) if info.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def _disk(where: Path) -> str:
    lines = _output("df", "-T", str(where)).splitlines()
    return lines[-1].split()[1] if len(lines) > 1 else "unknown file system"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
