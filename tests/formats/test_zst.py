"""Compressed files of every program that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from formats.samples import SAMPLES, Sample
from formats.test_codex import compress

from awl.formats import Format
from awl.formats.listing import NotRecognised, recognise
from awl.store.importing import Brought, Importer

FRAMES = 6


def tried(path: Path, sample: Sample) -> Brought:
    return Importer(path.parent, (), "/x", dry_run=True).bring(path, sample.format)


def named(brought: Brought) -> list[str]:
    """The damage as a person is told of it."""
    return [line for line in brought.report.lines(Path()) if "left out" not in line]


def recognised(path: Path) -> Format | None:
    try:
        return recognise(path)
    except NotRecognised:
        return None


@pytest.mark.parametrize("rest", ["cut", "garbage"])
@pytest.mark.parametrize(
    "sample",
    [sample for sample in SAMPLES if str(sample) != "gemini-cli-document"],  # told by its suffix
    ids=str,
)
def test_what_stands_before_the_damage_comes_and_the_damage_is_told(
    tmp_path: Path, sample: Sample, rest: str
) -> None:
    """As much as of the file that is not compressed and ends there."""
    plain = sample.make(tmp_path / "there")
    data = plain.read_bytes()
    step = len(data) // FRAMES + 1
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    frames = list(map(compress, pieces))
    compressed = plain.with_name(f"{plain.name}.zst")
    for whole in range(1, FRAMES):
        plain.write_bytes(b"".join(pieces[:whole]))
        expected = tried(plain, sample)
        damage = frames[whole][:-3] if rest == "cut" else b"damage" * 20
        compressed.write_bytes(b"".join(frames[:whole]) + damage)
        brought = tried(compressed, sample)
        assert (brought.outcome, brought.tally) == (expected.outcome, expected.tally)
        assert brought.report.damaged == 1
        (damaged,) = brought.report.damage
        assert "unpacked" in damaged.reason
        assert all(line.endswith("; what follows is lost too") for line in named(brought))
        assert recognised(compressed) == recognised(plain)
    assert brought.tally.messages > 0
