"""Old tool output that need not be sent any more."""

from __future__ import annotations

from histories import ANTHROPIC, JUMPS, TALK, Step, examples, histories, replayed, story
from hypothesis import given
from hypothesis import strategies as st
from rawlog import RawLog, result

from awl.conversation import ModelRef
from awl.entries import CompactionEntry
from awl.pruning import prunable
from awl.tokens import size
from awl.view import CLEARED, view

MODEL = ModelRef("anthropic", "claude-1")
LONG = "line\n" * 1000


def rounds(*outputs: str) -> RawLog:
    """A prompt and rounds of one call each, three entries a round; then an answer."""
    log = RawLog()
    log.prompt("go")
    for n, output in enumerate(outputs):
        log.calls(f"c{n}")
        log.started(f"c{n}")
        log.results(result(f"c{n}", output))
    log.answer("done")
    return log


def cleared(log: RawLog, keep: int = 0) -> list[int]:
    found = prunable(log.state(), MODEL, keep)
    return [] if found is None else list(found[0].cleared)


def test_long_output_before_the_last_entries_is_old() -> None:
    log = rounds(LONG, LONG, LONG)  # results at 4, 7 and 10
    assert cleared(log) == [4, 7, 10]
    assert cleared(log, keep=2) == [4, 7]
    assert cleared(log, keep=5) == [4]
    assert cleared(log, keep=100) == []


def test_short_output_stays() -> None:
    assert cleared(rounds("ok", LONG, "ok")) == [7]


def test_what_the_model_has_not_read_yet_stays() -> None:
    log = rounds(LONG)
    log.prompt("more")
    log.calls("x")
    log.started("x")
    log.results(result("x", LONG))
    assert cleared(log) == [4]


def test_what_is_cleared_or_condensed_is_not_cleared_again() -> None:
    log = rounds(LONG, LONG)
    log.add("compaction", tier="soft", clearedCount=1, cleared=[4])
    assert cleared(log) == [7]
    log.condensed(1, 8)
    assert cleared(log) == []


def test_a_result_that_was_logged_alone_is_cleared_by_its_own_entry() -> None:
    log = RawLog()
    log.prompt("go")
    log.calls("a", "b")
    log.started("a")
    log.ended("a", LONG)  # 4; then it was killed
    log.prompt("on")
    log.answer("ok")
    assert cleared(log) == [4]


def test_the_entry_tells_how_many_outputs_and_what_is_freed() -> None:
    log = RawLog()
    log.prompt("go")
    log.calls("a", "b")
    log.results(result("a", LONG), result("b", "short"))
    log.answer("done")
    found = prunable(log.state(), MODEL, 0)
    assert found is not None
    entry, freed = found
    assert (entry.tier, entry.cleared_count, entry.cleared) == ("soft", 2, (3,))
    assert 1200 < freed < 1300


@examples(80)
@given(histories(*TALK, *TALK, *JUMPS, "kill", "reopen", most=16), st.integers(0, 6))
def test_what_is_freed_is_what_the_request_is_smaller_by(steps: list[Step], keep: int) -> None:
    long = [(kind, n, text * 400) for kind, n, text in steps]
    with story() as told:
        told.play(long)
        session = told.session
        before = size(session.state, ANTHROPIC)
        found = prunable(session.state, ANTHROPIC, keep)
        if found is None:
            return
        entry, freed = found
        assert isinstance(entry, CompactionEntry)
        session.append(entry)
        after = size(session.state, ANTHROPIC)
        assert before.whole - after.whole == freed
        if before.total >= freed:
            assert before.total - after.total == freed
        sent = view(session.state, ANTHROPIC)
        contents = [r.content for message in sent.messages for r in message.tool_results]
        assert contents.count(CLEARED) >= 1
        assert prunable(session.state, ANTHROPIC, keep) is None
        assert view(replayed(session.path, lazily=True), ANTHROPIC) == sent
