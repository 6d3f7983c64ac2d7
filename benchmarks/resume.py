"""A session is opened and its conversation there, beside the decoding of its lines."""

from __future__ import annotations

from pathlib import Path

import msgspec

from awl.entries import Header, KnownEntry
from awl.session import Session
from benchmarks.corpus import folder, write_log
from benchmarks.figures import Curve, Figure, Found, in_turns, medians, ratio

FLOOR = "msgspec typed decode, line by line"
OUTER_FLOOR = "the outer fields of each line decoded"


class OuterFields(msgspec.Struct, rename="camel"):
    """What every entry has."""

    type: str
    id: str
    parent_id: str | None = None
    timestamp: str = ""
    seq: int = 0
    turn_id: int | None = None
    provider: str | None = None
    model: str | None = None


def typed_floor(path: Path) -> object:
    """Every line decoded, one by one, as what it is."""
    decode = msgspec.json.Decoder(Header | KnownEntry).decode
    with path.open("rb") as lines:
        return [decode(line) for line in lines]


def outer_floor(path: Path) -> object:
    """The outer fields of every line decoded, one by one."""
    decode = msgspec.json.Decoder(OuterFields).decode
    with path.open("rb") as lines:
        for line in lines:
            decode(line)
    return None


def resumed(path: Path) -> object:
    """What a person who resumes waits for."""
    session = Session.open(path)
    found = session.state.items, session.conversation
    session.close()
    return session, found


def measure(quick: bool) -> Found:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    bar_at = 10_000 if quick else 100_000
    names = ("awl", "floor", "awl, condensed", "floor, outer fields")
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    figures: list[Figure] = []
    for size in sizes:
        times = 3 if size > bar_at else 9
        whole, condensed = _whole(size, times), _condensed(size, times)
        for name, seconds in {**whole, **condensed}.items():
            points[name].append((size, seconds))
        if size == bar_at:
            entries = f"{size:,} entries"
            figures += [
                ratio(f"resume of {entries}", whole["awl"], FLOOR, whole["floor"], 1.25),
                ratio(
                    f"resume of {entries}, condensed near the end",
                    condensed["awl, condensed"],
                    OUTER_FLOOR,
                    condensed["floor, outer fields"],
                    1.3,
                ),
            ]
    return Found(figures, [Curve("resume", "entries in the session", "a resume", points)])


def _whole(size: int, times: int) -> dict[str, float]:
    with folder() as root:
        path = write_log(root, size)
        works = {"floor": lambda: typed_floor(path), "awl": lambda: resumed(path)}
        return medians(in_turns(works, times))


def _condensed(size: int, times: int) -> dict[str, float]:
    with folder() as root:
        path = write_log(root, size, condensed=True)
        works = {
            "floor, outer fields": lambda: outer_floor(path),
            "awl, condensed": lambda: resumed(path),
        }
        return medians(in_turns(works, times))
