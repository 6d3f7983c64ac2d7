"""Where a history may be cut: at edges and behind rounds, never inside one."""

from __future__ import annotations

from collections import Counter

from histories import ACCIDENTS, ANTHROPIC, JUMPS, TALK, Step, examples, histories, story
from hypothesis import given
from hypothesis import strategies as st
from rawlog import RawLog, result

from awl.conversation import ModelRef, ToolResult
from awl.cuts import Cut, choose, cuts
from awl.entries import CondensationEntry, Summary
from awl.state import State
from awl.tokens import size
from awl.view import View, view

MODEL = ModelRef("anthropic", "claude-1")


def found(log: RawLog) -> list[Cut]:
    state = log.state()
    return cuts(state, size(state, MODEL))


def ranges(log: RawLog) -> list[tuple[int, int]]:
    return [(cut.lo, cut.hi) for cut in found(log)]


def turns(count: int) -> RawLog:
    """System text, then turns of two entries each."""
    log = RawLog()
    log.system("be brief")
    for n in range(count):
        log.prompt(f"x{n}")
        log.answer(f"y{n}")
    return log


def test_it_may_be_cut_before_each_prompt_and_at_the_end_of_a_finished_turn() -> None:
    log = turns(3)
    assert ranges(log) == [(1, 3), (1, 5), (1, 7)]
    assert [cut.kept for cut in found(log)] == [4, 2, 0]
    assert all(cut.edge for cut in found(log))
    log.prompt("open")
    assert ranges(log) == [(1, 3), (1, 5), (1, 7)]


def test_there_is_no_cut_where_nothing_lies_before() -> None:
    assert ranges(RawLog()) == []
    log = RawLog()
    log.system("be brief")
    log.prompt("x")
    assert ranges(log) == []


def test_it_may_be_cut_behind_a_round_that_was_answered() -> None:
    log = turns(1)
    log.prompt("do it")  # 4
    log.calls("a")  # 5
    log.started("a")
    log.results(result("a"))  # 7
    log.calls("b")  # 8
    log.started("b")
    log.results(result("b"))  # 10
    assert [(cut.hi, cut.edge) for cut in found(log)] == [(3, True), (7, False)]
    log.answer("done")
    assert [(cut.hi, cut.edge) for cut in found(log)] == [
        (3, True),
        (7, False),
        (10, False),
        (11, True),
    ]


def test_it_is_never_cut_between_a_call_and_its_result() -> None:
    log = RawLog()
    log.prompt("x")  # 1
    log.calls("a", "b")  # 2
    log.results(result("a"))  # 3
    log.results(result("b"))  # 4
    log.answer("done")  # 5
    assert ranges(log) == [(1, 4), (1, 5)]
    late = RawLog()
    late.prompt("x")  # 1
    late.calls("a")  # 2
    late.prompt("y")  # 3
    late.results(result("a"))  # 4: it came after the next prompt
    late.answer("done")  # 5
    assert ranges(late) == [(1, 4), (1, 5)]


def test_calls_that_a_prompt_ended_lie_before_it_and_open_ones_stay() -> None:
    log = turns(1)
    log.prompt("x")  # 4
    log.calls("a", "b")  # 5
    log.started("a")
    log.ended("a")  # 7
    assert ranges(log) == [(1, 3)]
    log.prompt("go on")  # 8
    assert ranges(log) == [(1, 3), (1, 7)]


def test_the_range_begins_where_the_last_one_ended() -> None:
    log = turns(3)
    log.condensed(1, 3)
    assert ranges(log) == [(4, 5), (4, 8)]
    log.prompt("z")
    log.answer("w")
    log.condensed(4, 8)
    assert ranges(log) == [(9, 11)]


def test_behind_a_rewind_only_the_path_counts() -> None:
    log = turns(3)
    log.add("rewind", parentId="e3")  # 8
    log.prompt("other")  # 9
    log.answer("way")  # 10
    assert ranges(log) == [(1, 8), (1, 10)]
    log.add("rewind", parentId=None)  # 11
    log.prompt("anew")  # 12
    log.answer("once more")  # 13
    assert ranges(log) == [(11, 13)]


def test_numbers_that_do_not_grow_along_the_path_are_not_cut_between() -> None:
    log = RawLog()
    log.prompt("x")  # 1
    log.answer("y", seq=9)
    log.prompt("z", seq=5)
    log.answer("w", seq=6)
    log.prompt("v", seq=12)
    assert ranges(log) == [(1, 9)]


def cut(hi: int, kept: int, *, edge: bool = True) -> Cut:
    return Cut(lo=1, hi=hi, entries=hi, kept=kept, edge=edge, left=100 - hi)


def test_the_last_edge_that_keeps_enough_is_taken_if_it_makes_room() -> None:
    edges = [cut(2, 8), cut(4, 6), cut(6, 4), cut(8, 2)]
    rounds = [cut(3, 7, edge=False), cut(9, 1, edge=False)]
    found = sorted([*edges, *rounds], key=lambda one: one.hi)

    def hi(keep: int, left: int) -> int | None:
        chosen = choose(found, keep, lambda one: one.left <= left)
        return None if chosen is None else chosen.hi

    assert hi(5, 100) == 4
    assert hi(5, 94) == 6
    assert hi(5, 92) == 8
    assert hi(5, 91) == 9  # a round within the last turn
    assert hi(5, 0) == 9  # nothing makes enough room: what leaves least
    assert hi(9, 100) == 2  # nothing keeps enough: what keeps most
    assert choose([], 5, lambda one: True) is None


def condensed(state: State, at: Cut) -> CondensationEntry:
    return CondensationEntry(
        replaced=(at.lo, at.hi), summary=Summary(), tokens_before=9, tokens_after=1
    )


def outcomes(sent: View) -> list[tuple[str, str]]:
    """What each call was, and what it came to, as a model is told."""
    results = {r.tool_use_id: r for message in sent.messages for r in message.tool_results}
    assert all(isinstance(one, ToolResult) for one in results.values())
    return [
        (use.name + use.input, results[use.id].content)
        for message in sent.messages
        for use in message.tool_uses
    ]


@examples(150)
@given(histories(*TALK, *TALK, *JUMPS, *ACCIDENTS, "import", "note", most=18), st.integers(0, 99))
def test_wherever_it_is_cut_the_rest_is_sent_as_before(steps: list[Step], pick: int) -> None:
    with story() as told:
        told.play(steps)
        state = told.session.state
        places = cuts(state, size(state, ANTHROPIC))
        if not places:
            return
        at = places[pick % len(places)]
        before, findings = outcomes(view(state, ANTHROPIC)), len(state.all_findings)
        replaced = {(i.position, i.kind) for i in at.replaced(size(state, ANTHROPIC))}
        stay = [i for i in state.items if (i.position, i.kind) not in replaced]
        told.session.append(condensed(state, at))
        state = told.session.state
        assert state.condensed[-1][:2] == (at.lo, at.hi)
        assert len(state.all_findings) == findings
        assert [i.message for i in state.items if i.seq != state.seqs[-1]] == [
            i.message for i in stay
        ]
        after = outcomes(view(state, ANTHROPIC))
        assert len(after) == sum(len(item.calls) for item in stay)
        assert not Counter(after) - Counter(before)
        again = cuts(state, size(state, ANTHROPIC))
        assert all(cut.lo == at.hi + 1 for cut in again)
