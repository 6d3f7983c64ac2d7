"""What was found, as Markdown and as plots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from benchmarks.figures import STEPS, Curve, Figure, Found, Rival, amount
from benchmarks.machine import Machine

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
SPARE = 0.1
"""Syncs that an append may have fewer than one: they are counted as the difference of two runs of
which one may close with a few syncs more, such as those that move a database's log into it. A store
that does without them at some appends has far fewer."""
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


class Report(msgspec.Struct, frozen=True):
    """One run: what each measure found, by its name."""

    machine: Machine
    quick: bool
    found: dict[str, Found]

    def curves(self) -> Iterator[Curve]:
        for found in self.found.values():
            yield from found.curves


def markdown(report: Report, plots: str = "") -> str:
    """The tables of a run; with `plots`, the folder that they lie in, they are shown."""
    parts = [f"{'A quick run' if report.quick else 'Measured'} on: {report.machine}."]
    if report.quick:
        parts.append("Bars are meant for the sizes of a whole run; these are smaller.")
    figures = [figure for found in report.found.values() for figure in found.figures]
    if figures:
        parts.append("\n".join(_figures(figures)))
    rivals = [rival for found in report.found.values() for rival in found.rivals]
    if rivals:
        parts.append("\n".join(_rivals(rivals)))
    if plots:
        parts += [
            f"![{curve.y} by {curve.x}]({plots}/{curve.name}.svg)" for curve in report.curves()
        ]
    return "\n\n".join(parts) + "\n"


def _figures(figures: Iterable[Figure]) -> Iterator[str]:
    yield "| what | floor | its median | awl's median | figure | bar | |"
    yield "|---|---|---|---|---|---|---|"
    marks = {True: "met", False: "**missed**", None: ""}
    for one in figures:
        base = "" if one.base is None else amount(one.base, one.unit)
        ours = amount(one.ours, one.unit)
        cells = (one.what, one.floor, base, ours, one.shown, one.bar, marks[one.met])
        yield f"| {' | '.join(cells)} |"


def _rivals(rivals: list[Rival]) -> Iterator[str]:
    floor = next(rival for rival in rivals if rival.name == "floor").seconds
    yield "| store | append | syncs an append | load | list | search | fork |"
    yield "|---|---|---|---|---|---|---|"
    for rival in rivals:
        name = f"{rival.name} ({rival.version})" if rival.version else rival.name
        if rival.problem:
            problem = " ".join(rival.problem.replace("|", "/").split())
            yield f"| {name} | not measured: {problem} | | | | | |"
            continue
        cells = []
        for step in STEPS:
            ours, base = rival.seconds.get(step), floor.get(step)
            cells.append("–" if ours is None or not base else f"{ours / base:.2f} ×")
        if rival.name == "floor":
            cells = [amount(floor[step], "s") if step in floor else "–" for step in STEPS]
        yield f"| {name} | {cells[0]} | {_syncs(rival)} | {' | '.join(cells[1:])} |"
    notes = [f"- {rival.name}: {_notes(rival)}" for rival in rivals if rival.notes]
    if notes:
        yield ""
        yield "What a – stands for, or what was measured:"
        yield ""
        yield from notes


def _syncs(rival: Rival) -> str:
    if "append" not in rival.seconds:
        return "–"
    if rival.syncs is None:
        return "not counted"
    lost = "" if rival.syncs > 1 - SPARE else ", **not durable**"
    return f"{rival.syncs:.2g}{lost}"


def _notes(rival: Rival) -> str:
    steps: dict[str, list[str]] = {}
    for step, note in rival.notes.items():
        steps.setdefault(note, []).append(step)
    return "; ".join(f"{' and '.join(of)}: {note}" for note, of in steps.items())


def write(report: Report) -> None:
    """Put the tables and the plots of a run into the page about performance."""
    draw(report.curves(), PAGE.with_suffix(""))
    page = PAGE.read_text(encoding="utf-8")
    tables = f"{BEGIN}\n\n{markdown(report, plots=PAGE.stem)}\n{END}"
    pattern = f"{re.escape(BEGIN)}.*{re.escape(END)}"
    PAGE.write_text(re.sub(pattern, lambda _: tables, page, flags=re.S), encoding="utf-8")


def draw(curves: Iterable[Curve], to: Path) -> None:
    """A plot of each curve, as SVG that is the same for the same figures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "awl", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot as plt

    to.mkdir(parents=True, exist_ok=True)
    for curve in curves:
        figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
        for name, points in curve.lines.items():
            style = {"lw": 1.2, "marker": ".", "alpha": 0.8}
            if name.startswith("awl"):
                style = {"lw": 2.4, "marker": "o"}
            elif name.startswith("floor"):
                style = {"lw": 1.6, "ls": "--", "marker": ".", "color": "grey"}
            if name == "floor, outer fields":
                style["ls"] = ":"
            axes.loglog(*zip(*points, strict=True), label=name, **style)
        axes.set(xlabel=curve.x, ylabel=f"seconds: {curve.y}")
        axes.grid(True, which="major", alpha=0.3)
        axes.set_ylim(bottom=axes.get_ylim()[0] / 2)
        axes.legend(fontsize=8)
        figure.savefig(to / f"{curve.name}.svg", metadata={"Date": None})
        plt.close(figure)
