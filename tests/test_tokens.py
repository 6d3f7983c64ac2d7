"""How large the next request is: as it was told, else by estimate."""

from __future__ import annotations

from typing import Any

from histories import ACCIDENTS, ANTHROPIC, JUMPS, TALK, Step, examples, histories, replayed, story
from hypothesis import given
from rawlog import RawLog, result, use

from awl.conversation import ModelRef
from awl.providers import ToolSpec
from awl.tokens import PICTURE, Size, of_text, size

MODEL = ModelRef("anthropic", "claude-1")
OTHER = ModelRef("openai", "gpt")
WORDS = "word " * 80  # 100 tokens
USAGE: dict[str, Any] = {
    "inner": {"usage": {"input": 900, "output": 100, "cacheRead": 4000, "cacheWrite": 1000}}
}


def measured(log: RawLog, target: ModelRef = MODEL) -> Size:
    return size(log.state(), target)


def near(value: int, expected: int) -> bool:
    return expected <= value <= expected * 1.1 + 20


def test_an_estimate_counts_bytes_so_that_other_scripts_are_not_taken_for_cheap() -> None:
    assert of_text("") == 0
    assert of_text("four") == 1
    assert of_text("fours") == 2
    assert of_text("漢字漢字") == 3
    assert of_text("\ud800") == 1


def test_without_a_count_all_is_estimated() -> None:
    log = RawLog()
    log.system(WORDS)
    log.prompt(WORDS)
    log.answer(WORDS)
    found = measured(log)
    assert near(found.total, 300)
    assert found.fixed == 100
    assert [tokens for _, tokens in found.messages] == [104, 104]
    assert found.whole == found.total


def test_only_the_system_text_in_force_counts() -> None:
    log = RawLog()
    log.system(WORDS * 50)
    log.system("short")
    log.prompt(WORDS)
    assert near(measured(log).total, 100)


def test_tools_and_pictures_and_results_count() -> None:
    log = RawLog()
    picture = {"type": "image", "mimeType": "image/png", "blob": {"blob": "0" * 64, "size": 5}}
    log.said("user", picture)
    log.answer(use("a", WORDS), stop="toolUse")
    log.results(result("a", WORDS, images=[picture]))
    before = measured(log).total
    assert near(before, 2 * PICTURE + 200)
    tool = ToolSpec("bash", WORDS, {"type": "object"})
    assert near(size(log.state(), MODEL, [tool]).total - before, 100)


def test_a_result_that_was_logged_alone_counts() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b")
    log.ended("a", WORDS)
    assert near(measured(log).total, 100)


def test_the_last_answer_tells_what_it_came_to() -> None:
    log = RawLog()
    log.prompt("x")
    log.answer("y", **USAGE)
    assert measured(log).total == 6000
    log.prompt(WORDS)
    assert near(measured(log).total - 6000, 100)
    log.answer(WORDS, stop="aborted")  # no count: it broke off
    assert near(measured(log).total - 6000, 200)


def test_what_another_model_counted_is_not_believed() -> None:
    log = RawLog()
    log.prompt("x")
    log.answer("y", **USAGE)
    assert measured(log, OTHER).total < 50


def test_a_count_of_nothing_is_not_believed() -> None:
    log = RawLog()
    log.prompt(WORDS)
    log.answer("y", inner={"usage": {"input": 0, "output": 0}})
    assert near(measured(log).total, 100)


def test_after_a_condensation_its_entry_tells() -> None:
    log = RawLog()
    log.prompt("x")
    log.answer("y", **USAGE)
    log.prompt("z")
    log.condensed(1, 2, tokensAfter=700)
    assert measured(log).total == 700
    log.answer(WORDS)
    assert near(measured(log).total - 700, 100)
    log.prompt("w")
    log.answer("v", **USAGE)
    assert measured(log).total == 6000


def test_a_condensation_without_a_count_makes_it_an_estimate() -> None:
    log = RawLog()
    log.prompt("x")
    log.answer("y", **USAGE)
    log.prompt("z")
    log.condensed(1, 2, tokensAfter=0)
    assert measured(log).total < 100


def test_output_that_was_cleared_since_does_not_count() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a")  # 2
    log.results(result("a", WORDS * 10))  # 3
    log.answer("y", **USAGE)
    log.add("compaction", tier="soft", clearedCount=1, cleared=[3])
    assert near(6000 - measured(log).total, 980)
    log.prompt("z")
    log.answer("w", **USAGE)  # it was counted without
    assert measured(log).total == 6000


def test_a_rewind_goes_back_to_the_count_there() -> None:
    log = RawLog()
    log.prompt("x")
    name = log.answer("y", **USAGE)
    log.prompt("z")
    log.answer("w", inner={"usage": {"input": 9000, "output": 1}})
    log.add("rewind", parentId=name)
    assert measured(log).total == 6000


def test_what_a_tokenizer_does_otherwise_is_a_factor_and_what_a_server_adds_stays() -> None:
    exact = Size(1000, 1000, (), ())
    assert exact.real(400) == 400
    assert Size(1300, 1000, (), ()).real(500) == 650
    assert Size(6000, 1000, (), ()).real(0) == 4500
    assert Size(0, 0, (), ()).real(0) == 0
    assert Size(100, 1000, (), ()).real(0) == 0


@examples(80)
@given(histories(*TALK, *TALK, *JUMPS, *ACCIDENTS, "import", "note", most=16))
def test_it_is_the_same_live_replayed_and_lazily_replayed(steps: list[Step]) -> None:
    with story() as told:
        told.play(steps)
        if not told.session.born:
            return
        live = size(told.session.state, ANTHROPIC)
        for lazily in (False, True):
            found = size(replayed(told.session.path, lazily=lazily), ANTHROPIC)
            assert (found.total, found.fixed) == (live.total, live.fixed)
            assert [t for _, t in found.messages] == [t for _, t in live.messages]
