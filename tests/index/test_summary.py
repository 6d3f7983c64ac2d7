"""What lists show of a log is what its state says, however often it was read on."""

from __future__ import annotations

import os
from pathlib import Path

from histories import ACCIDENTS, JUMPS, NAMING, TALK, Step, examples, histories, story
from hypothesis import given
from hypothesis import strategies as st
from rawlog import RawLog

from awl.index.info import Summary
from awl.index.summary import Mark, fits, read_on
from awl.replay import read
from awl.store.files import describe


def look(path: Path, before: Mark | None = None) -> tuple[Summary | None, Mark]:
    """The summary of a log, read on from a mark if that fits."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_on(fd, path, before if before is not None and fits(fd, before) else None)
    finally:
        os.close(fd)


def as_described(path: Path) -> Summary:
    """The summary that the whole state of a log gives."""
    info = describe(path, read(path))
    return Summary(
        id=info.id,
        title=info.title,
        cwd=os.fsencode(info.cwd),
        provider=info.provider,
        model=info.model,
        created=info.created,
        updated=info.updated,
        message_count=info.message_count,
        event_count=info.event_count,
        interrupted=info.status == "interrupted",
        forked_from=info.forked_from,
    )


@examples(80)
@given(histories(*TALK, *NAMING, *JUMPS, *ACCIDENTS, most=30), st.sets(st.integers(0, 29)))
def test_a_log_read_on_at_any_moments_gives_what_its_state_says(
    steps: list[Step], looks: set[int]
) -> None:
    with story() as told:
        mark: Mark | None = None
        for number, step in enumerate(steps):
            told.play([step])
            if number in looks and told.session.path.exists():
                _, mark = look(told.session.path, mark)
        path = told.session.path
        if not path.exists():
            return
        told._drop()  # what is open is not interrupted
        path.with_name(path.name + ".owner").unlink(missing_ok=True)
        summary, after = look(path, mark)
        fresh, fresh_mark = look(path)
        assert summary == fresh == as_described(path)
        assert (after.end, after.checksum) == (fresh_mark.end, fresh_mark.checksum)


def turns(count: int) -> RawLog:
    log = RawLog()
    log.system("be brief")
    for number in range(count):
        log.prompt(f"prompt {number}")
        log.answer("fine")
    return log


def test_only_the_last_turn_and_what_is_new_is_read_again(tmp_path: Path) -> None:
    log = turns(50)
    path = log.write(tmp_path)
    _, mark = look(path)
    assert mark.point.start > path.stat().st_size * 0.9
    log.prompt("more")
    path = log.write(tmp_path)
    summary, after = look(path, mark)
    assert summary is not None
    assert summary.message_count == 102
    assert summary.interrupted
    assert after.point.start == mark.end


def test_a_rewind_before_the_last_turn_is_read_whole(tmp_path: Path) -> None:
    log = turns(5)
    path = log.write(tmp_path)
    _, mark = look(path)
    log.add("rewind", parentId="e3")
    path = log.write(tmp_path)
    summary, _ = look(path, mark)
    assert summary == look(path)[0] == as_described(path)


def test_what_stands_behind_the_last_newline_is_not_read(tmp_path: Path) -> None:
    path = turns(1).write(tmp_path)
    summary, mark = look(path)
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"ffffffff"')
    assert look(path, mark) == (summary, mark)


def test_nothing_that_was_acknowledged_is_no_session(tmp_path: Path) -> None:
    path = turns(1).write(tmp_path)
    for data in (b"", b"\n", b'{"type":"session"', b"garbage\n"):
        path.write_bytes(data)
        assert look(path)[0] is None


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = turns(3).write(tmp_path)
    _, mark = look(path)
    data = path.read_bytes()
    for changed in (
        data.replace(b"prompt 0", b"Prompt 0"),
        data[:-2] + b" \n",
        data[:-1],
        data.replace(b"prompt 0", b"prompt 00"),
    ):
        path.write_bytes(changed)
        fd = os.open(path, os.O_RDONLY)
        assert not fits(fd, mark)
        os.close(fd)
