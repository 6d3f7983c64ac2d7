"""What a measure finds: figures against their floors and bars, and curves of how cost grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Literal

import msgspec

Unit = Literal["s", "B"]
STEPS = ("append", "load", "list", "search", "fork")
"""What is measured of a store."""


class Figure(msgspec.Struct, frozen=True):
    """One figure.

    `ours` and `base`, the floor's, are medians in `unit`: seconds or bytes. `value` is what the bar
    is about, and `shown` says it for a person. `met` is None where there is no bar.
    """

    what: str
    ours: float
    value: float
    shown: str
    unit: Unit = "s"
    floor: str = ""
    base: float | None = None
    bar: str = ""
    met: bool | None = None


class Curve(msgspec.Struct, frozen=True):
    """How what takes `y` grows with `x`: points (size, seconds) by what was measured."""

    name: str
    x: str
    y: str
    lines: dict[str, list[tuple[int, float]]]


class Rival(msgspec.Struct, frozen=True):
    """A store as other programs have them: medians in seconds by step, `syncs` an append or None if
    they were not counted, `notes` a word on steps that it has not, or has otherwise.

    `problem` says why it was not measured.
    """

    name: str
    version: str = ""
    syncs: float | None = None
    seconds: dict[str, float] = {}
    notes: dict[str, str] = {}
    problem: str = ""


class Found(msgspec.Struct, frozen=True):
    """All that one measure found."""

    figures: list[Figure] = []
    curves: list[Curve] = []
    rivals: list[Rival] = []


def in_turns(
    works: Mapping[str, Callable[[], object]], times: int, *, after: Callable[[], object] = int
) -> dict[str, list[float]]:
    """The seconds that each took, run in turns; `after` each, something that is not measured."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(times):
        for name, work in works.items():
            begun = time.perf_counter()
            made = work()
            taken[name].append(time.perf_counter() - begun)
            del made  # letting go of it is not what is measured
            after()
    return taken


def medians(taken: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: median(seconds) for name, seconds in taken.items()}


def ratio(
    what: str, ours: float, floor: str, base: float, most: float | None, unit: Unit = "s"
) -> Figure:
    """A figure that may be so many times its floor."""
    value = ours / base
    return Figure(
        what,
        ours,
        value,
        f"{beside(value, most)} ×",
        unit=unit,
        floor=floor,
        base=base,
        bar="" if most is None else f"≤ {most:g} ×",
        met=None if most is None else value <= most,
    )


def over(what: str, ours: float, floor: str, base: float, most: float | None) -> Figure:
    """A figure that may be so many seconds over its floor."""
    value = ours - base
    return Figure(
        what,
        ours,
        value,
        f"{'+' if value >= 0 else ''}{beside(value, most, _seconds)}",
        floor=floor,
        base=base,
        bar="" if most is None else f"≤ +{amount(most, 's')}",
        met=None if most is None else value <= most,
    )


def plain(what: str, ours: float, most: float | None = None, unit: Unit = "s") -> Figure:
    """A figure without a floor."""
    bar = "" if most is None else f"≤ {amount(most, unit)}"
    met = None if most is None else ours <= most
    shown = beside(ours, most, _seconds if unit == "s" else _bytes)
    return Figure(what, ours, ours, shown, unit=unit, bar=bar, met=met)


def amount(value: float, unit: Unit) -> str:
    """Seconds or bytes in a unit that fits."""
    return _seconds(value) if unit == "s" else _bytes(value)


def _seconds(value: float, more: int = 0) -> str:
    for size, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= size:
            return f"{_short(value / size, more)} {name}"
    return f"{value * 1e9:.{more}f} ns"


def _bytes(value: float, more: int = 0) -> str:
    return f"{value / 1e6:.{more}f} MB"


def _short(value: float, more: int = 0) -> str:
    """Three digits, and `more` of them."""
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:.{decimals + more}f}"


def beside(value: float, bar: float | None, show: Callable[[float, int], str] = _short) -> str:
    """A value with as many decimals as tell it from its bar: one that misses it looks like it."""
    for more in range(4):
        shown = show(value, more)
        if bar is None or value == bar or shown != show(bar, more):
            break
    return shown
