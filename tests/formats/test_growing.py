"""A file that is imported again and again while its program writes it becomes the session that it
would have become at once: nothing comes twice, nothing is lost, and it never comes apart.

The short form imports after some lines; `pytest --long tests/formats` after each.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from formats.counting import count_awl
from formats.landing import DATA, Landed, assert_sound
from formats.samples import SAMPLES, Sample

from awl.replay import read
from awl.store.importing import Importer

COUNTED = {sample.form: sample for sample in SAMPLES if sample.by_line}
FILES = [
    (sample, path)
    for form, sample in COUNTED.items()
    for path in sorted((DATA / form).rglob("*.jsonl"))
    if not path.name.startswith("context")
]


def grow(sample: Sample, file: Path, root: Path, every: int) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.chmod(0o600)
    outcomes = []
    for number in sorted({*range(1, len(lines), every), len(lines)}):
        file.write_bytes(b"".join(lines[:number]))
        logs = sorted(root.glob("*/*.jsonl"))  # as a new process would find them
        brought = Importer(root, logs, str(root)).bring(file, sample.format)
        assert not brought.reason, f"after {number} lines"
        outcomes.append(brought.outcome)
    (log,) = root.glob("*/*.jsonl")
    assert outcomes.count("new") == 1 and "apart" not in outcomes
    whole = Importer(root / "whole", (), str(root)).bring(file, sample.format)
    assert whole.path is not None
    grown = Landed(log, brought)
    assert count_awl(grown.shown) == count_awl(Landed(whole.path, whole).shown)
    assert said(log) == said(whole.path)
    assert_sound(grown)


def said(log: Path) -> list[tuple[str, object]]:
    """What is on the path, block by block: an answer that came in parts is in several entries."""
    return [
        (item.message.role, block) for item in read(log).items for block in item.message.content
    ]


def placed(sample: Sample, path: Path, folder: Path) -> Path:
    """A file of the data where its program would have it."""
    if sample.form == "kimi-cli":
        file = sample.make(folder)
        return file.parents[1] / path.parent.name / path.name
    folder.mkdir()
    return Path(shutil.copy(path, folder))


each_file = pytest.mark.parametrize(
    ("sample", "path"), FILES, ids=[f"{one.form}-{path.stem[-8:]}" for one, path in FILES]
)


@each_file
def test_a_file_that_grows_becomes_what_it_is_in_the_end(
    tmp_path: Path, sample: Sample, path: Path
) -> None:
    grow(sample, placed(sample, path, tmp_path / "there"), tmp_path / "awl", 5)


@pytest.mark.long
@each_file
def test_a_file_that_grows_line_by_line_becomes_what_it_is_in_the_end(
    tmp_path: Path, sample: Sample, path: Path
) -> None:
    grow(sample, placed(sample, path, tmp_path / "there"), tmp_path / "awl", 1)


@pytest.mark.parametrize("form", ["zeph", "openai"])
def test_so_does_one_that_is_made_here(tmp_path: Path, form: str) -> None:
    grow(COUNTED[form], COUNTED[form].make(tmp_path / "there"), tmp_path / "awl", 1)
