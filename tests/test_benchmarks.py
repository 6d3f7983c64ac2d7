"""The benchmarks as a process: what they print, and how they refuse. Nothing is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def benchmarks(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
    )


def test_one_measure_gives_its_figure_its_curves_and_the_machine(tmp_path: Path) -> None:
    done = benchmarks("--only", "append", "--quick", "--json", AWL_BENCH_DIR=str(tmp_path))

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["quick"] is True
    assert report["machine"]["awl"]
    assert list(report["found"]) == ["append"]
    (figure,) = report["found"]["append"]["figures"]
    assert figure["base"] > 0
    assert figure["ours"] > 0
    assert figure["shown"]
    (curve,) = report["found"]["append"]["curves"]
    assert [size for size, _ in curve["lines"]["awl"]] == [100, 1_000, 10_000]
    assert [size for size, _ in curve["lines"]["floor"]] == [100, 1_000, 10_000]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "environ", "says"),
    [
        (("--only", "nonsense"), {}, "invalid choice: 'nonsense'"),
        (("--only", "append"), {"AWL_BENCH_DIR": "/nowhere"}, "AWL_BENCH_DIR is no folder"),
        (("--write", "--quick"), {}, "leave out --only and --quick"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_is_wrong(
    arguments: tuple[str, ...], environ: dict[str, str], says: str
) -> None:
    done = benchmarks(*arguments, **environ)

    assert done.returncode == 2
    assert not done.stdout
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("adapter", ["floor", "awl_session", "bare_sqlite"])
def test_a_store_that_is_driven_finds_what_it_was_given(adapter: str, tmp_path: Path) -> None:
    """Five more appends open the session. What a fork makes is gone when it is measured."""
    steps = [
        ("fill", "one", 200),
        ("append", "one", 20),
        ("fork", "one", 0),
        ("load", "one", 0),
        ("sessions", "many", 3),
        ("list", "many", 0),
        ("index", "searched", 200),
        ("search", "searched", 0),
    ]
    for _, where, _ in steps:
        (tmp_path / where).mkdir(exist_ok=True)
    asked = [json.dumps([step, str(tmp_path / where), count]) for step, where, count in steps]
    peers = ROOT / "benchmarks" / "peers"

    done = subprocess.run(
        [sys.executable, "-P", str(peers / "drive.py"), str(peers / f"{adapter}.py")],
        input="\n".join(asked),
        capture_output=True,
        text=True,
    )

    names = [step for step, _, _ in steps]
    answers = dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))
    assert all(answer["seconds"] > 0 for answer in answers.values()), answers
    assert {step: answers[step]["found"] for step in ("load", "list", "search")} == {
        "load": 200 + 5 + answers["append"]["times"],
        "list": 3,
        "search": 2,
    }
