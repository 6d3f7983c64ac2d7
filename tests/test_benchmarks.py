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
