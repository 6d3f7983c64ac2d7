"""awl, killed or cancelled at every stage of a turn, goes on with any provider.

Real processes and the official SDKs, against a server that refuses what the real ones refuse. The
turn thinks, speaks and makes two tool calls; what is told of each is what the log can know.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from running import JSON, Awl, kind, until
from standin import (
    Answer,
    Call,
    Drop,
    End,
    Fail,
    Part,
    Redacted,
    Say,
    StandIn,
    StreamError,
    Think,
    sign,
)
from wires import NAMES, configure, told
from zygote import Forks

from awl.history import KNOWN

THOUGHT = "I think that both are needed."
WORDS = "Let me look at both."
PIECE = 7
NEVER = "[interrupted: this tool call was never started]"
UNKNOWN = "[interrupted: no result was recorded."
CANCELLED = "[cancelled by the user before it started]"
STOPPED = "[cancelled by the user]"


@dataclass(frozen=True)
class Stage:
    """A moment in a turn, and what is known afterwards.

    `after` is where the stream stands still; `stop` what awl had just logged; `inside` the tool
    that runs. `shown` is what a killed awl had logged of a streaming answer. `killed` is what a
    model is told of the two calls after a kill, `cancelled` after a cancel: any of these words.
    """

    name: str
    after: str = ""
    stop: str = ""
    inside: int = 0
    shown: str = ""
    killed: tuple[str, ...] = ()
    cancelled: tuple[tuple[str, ...], ...] = ()


STAGES = (
    Stage("after_the_prompt", stop="user1"),
    Stage("inside_thinking", after=THOUGHT[:PIECE]),
    Stage("inside_text", after=WORDS[:PIECE], shown=WORDS[:PIECE]),
    Stage("inside_a_call", after="comma", shown=WORDS),
    Stage(
        "after_the_answer",
        stop="assistant1",
        killed=(NEVER, NEVER),
        cancelled=((CANCELLED, STOPPED), (CANCELLED,)),
    ),
    Stage(
        "after_the_first_call",
        stop="toolCall1",
        killed=(UNKNOWN, NEVER),
        cancelled=((STOPPED, "one"), (CANCELLED,)),
    ),
    Stage(
        "inside_the_first", inside=1, killed=(UNKNOWN, NEVER), cancelled=((STOPPED,), (CANCELLED,))
    ),
    Stage(
        "after_the_first_result",
        stop="toolResult1",
        killed=("one", NEVER),
        cancelled=(("one",), (CANCELLED, STOPPED)),
    ),
    Stage("inside_the_second", inside=2, killed=("one", UNKNOWN), cancelled=(("one",), (STOPPED,))),
    Stage(
        "before_the_results",
        stop="-results1",
        killed=("one", UNKNOWN),
        cancelled=(("one",), ("two",)),
    ),
)


class Played:
    """The turn, and how it was ended: a session in which only half of it happened."""

    def __init__(self, awl: Awl, forks: Forks, server: StandIn, origin: str) -> None:
        self.awl, self.forks, self.server, self.origin = awl, forks, server, origin
        self.commands = ("", "")
        self.told = ""
        configure(awl, server, first=origin)

    def end(self, stage: Stage, signal: str, code: int) -> None:
        self.commands = tuple(
            f"kill -{signal[3:]} $PPID; exec sleep 2" if stage.inside == n else f"echo {word}"
            for n, word in enumerate(("one", "two"), 1)
        )  # type: ignore[assignment]
        if stage.stop != "user1":  # then nobody is asked
            self.server.plays(Answer(self.parts(), after=stage.after))
        if stage.stop:
            self.run("-y", "-p", "go", code=code, stop=(stage.stop, signal))
        elif stage.inside:
            self.run("-y", "-p", "go", code=code)
        else:
            running = self.forks.start(self.awl, "-y", "-p", "go")
            until(self.server.holding.is_set, "the stream")
            if stage.shown:
                until(lambda: '"type":"partial"' in self.awl.log.read_text(), "a partial")
            running.signal(signal)
            assert running.done().code == code

    def parts(self) -> tuple[Part, ...]:
        return (
            Think(THOUGHT, chunk=PIECE),
            Say(WORDS, chunk=PIECE),
            *(Call("bash", {"command": command}) for command in self.commands),
        )

    def run(self, *arguments: str, code: int = 0, stop: tuple[str, str] | None = None) -> str:
        done = self.forks(self.awl, *arguments, code=code, stop=stop)
        assert done.err.count("sent to the model: ") <= 1, "more than one quiet line a request"
        self.told = done.err
        return done.out

    def resume(self, prompt: str, *options: str) -> list[tuple[str, str]]:
        """Go on: it must succeed, leave the old bytes alone and add what belongs to this turn.
        Returns what the model was told."""
        before = self.awl.log.read_bytes()
        asked = len(self.server.requests)
        self.server.plays([Say(f"Answer to {prompt}.")])
        out = self.run("--resume", *options, "-p", prompt)
        assert out == f"Answer to {prompt}.\n"
        after = self.awl.log.read_bytes()
        assert after.startswith(before)
        added = [kind(json.loads(line)) for line in after[len(before) :].splitlines()]
        switched = ["modelChange"] if options and self.switched(before, options[-1]) else []
        assert added == [*switched, "user", "assistant", "end"]
        (request,) = self.server.requests[asked:]
        assert request.refusal is None
        return told(request.body)

    def switched(self, log: bytes, name: str) -> bool:
        asked = [
            e["provider"] for line in log.splitlines() if "provider" in (e := json.loads(line))
        ]
        return bool(asked[-1] != name)

    def copy(self) -> Callable[[], None]:
        """Keep the session as it is now; calling the result brings it back."""
        kept = self.awl.home / "kept"
        shutil.copytree(self.awl.sessions, kept)

        def restore() -> None:
            shutil.rmtree(self.awl.sessions)
            shutil.copytree(kept, self.awl.sessions)

        return restore

    def thought(self, target: str) -> list[tuple[str, str]]:
        """The turn's reasoning as this target gets it back: only from whom it came, as it was."""
        if target != self.origin or target == "chat":
            return []
        (answer,) = [e for e in self.awl.entries() if kind(e) == "assistant"][:1]
        block = answer["message"]["content"][0]
        assert block["thinking"] == THOUGHT
        if target == "claude":
            assert block["signature"] == sign(THOUGHT)
            sent = {"type": "thinking", "thinking": THOUGHT, "signature": sign(THOUGHT)}
        else:
            sent = {**block["providerData"], "encrypted_content": block["signature"]}
        return [("thought", json.dumps(sent))]


def check_told(
    got: list[tuple[str, str]], expected: list[tuple[str, str | tuple[str, ...]]]
) -> None:
    """`got` is `expected`: words that begin like that, or like one of those."""
    assert [who for who, _ in got] == [who for who, _ in expected], got
    for (who, said), (_, wanted) in zip(got, expected, strict=True):
        if who == "thought":
            assert json.loads(said) == json.loads(str(wanted))
        elif who == "result":
            assert any(piece in said for piece in ([wanted] if isinstance(wanted, str) else wanted))
        else:
            assert said == wanted


def expected(
    played: Played,
    shown: str,
    results: tuple[str | tuple[str, ...], ...],
    target: str,
    *,
    whole: bool,
) -> list[tuple[str, str | tuple[str, ...]]]:
    """What a model must be told of the turn that was ended."""
    if not whole:
        return [("user", "go"), *([("assistant", shown)] if shown else [])]
    calls = [("call", command) for command in played.commands]
    answers = [("result", result) for result in results]
    return [("user", "go"), *played.thought(target), ("assistant", WORDS), *calls, *answers]


def check_going_on(
    played: Played,
    stage: Stage,
    results: tuple[str | tuple[str, ...], ...],
    *,
    branching: bool = True,
) -> None:
    """Go on with every provider: each as the first after it (`branching`), and in turn."""

    def so_far(target: str) -> list[tuple[str, str | tuple[str, ...]]]:
        return expected(played, stage.shown, results, target, whole=bool(stage.killed))

    others = [name for name in NAMES if name != played.origin]
    restore = played.copy()
    for name in others if branching else ():
        check_told(played.resume("next", "--provider", name), [*so_far(name), ("user", "next")])
        restore()
    said: list[tuple[str, str | tuple[str, ...]]] = [("user", "next")]
    check_told(played.resume("next"), [*so_far(played.origin), *said])
    for n, name in enumerate([played.origin, *others, played.origin]):
        before = said[-1][1]
        said += [("assistant", f"Answer to {before}."), ("user", f"more {n}")]
        got = played.resume(f"more {n}", "--provider", name)
        check_told(got, [*so_far(name), *said])


def _kills() -> list[Any]:
    """Every stage for the provider whose reasoning is signed; for the others some, or `--long`."""
    return [
        pytest.param(
            stage,
            origin,
            id=f"{stage.name}-{origin}",
            marks=[pytest.mark.long] if origin != "claude" and n % 4 != 2 else [],
        )
        for origin in NAMES
        for n, stage in enumerate(STAGES)
    ]


@pytest.mark.parametrize(("stage", "origin"), _kills())
def test_killed_at_every_stage_it_goes_on(
    awl: Awl, forks: Forks, server: StandIn, stage: Stage, origin: str
) -> None:
    played = Played(awl, forks, server, origin)
    played.end(stage, "SIGKILL", -9)
    # Where nothing is known of an answer, who goes on first makes no difference.
    branching = bool(stage.killed or stage.shown)
    check_going_on(played, stage, stage.killed, branching=branching)
    known = "that was interrupted is answered with what is known of it"
    assert (known in played.told) == bool({NEVER, UNKNOWN} & {*stage.killed})
    shown = played.run("sessions", "show", awl.id)
    assert ("(interrupted" in shown or "[interrupted" in shown) == bool(stage.killed or stage.shown)
    assert shown.count(f"[interrupted: {KNOWN['not_started']}]") == stage.killed.count(NEVER)
    assert shown.count(f"[interrupted: {KNOWN['unknown']}]") == stage.killed.count(UNKNOWN)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_cancelled_at_every_stage_it_goes_on(
    awl: Awl, forks: Forks, server: StandIn, stage: Stage
) -> None:
    played = Played(awl, forks, server, "claude")
    played.end(stage, "SIGINT", 130)
    check_going_on(played, stage, stage.cancelled, branching=False)
    assert "[interrupted" not in played.run("sessions", "show", awl.id)


def test_a_process_of_its_own_is_killed_and_goes_on(awl: Awl, server: StandIn) -> None:
    """The same once with nothing imported before: `python -m awl`."""
    configure(awl, server)
    call = Call("bash", {"command": "kill -KILL $PPID"})
    server.plays([Think(THOUGHT), Say(WORDS), call, call], [Say("On.")])
    awl("-y", "-p", "go", code=-9)
    before = awl.log.read_bytes()
    assert awl("--resume", "-p", "next").out == "On.\n"
    assert awl.log.read_bytes().startswith(before)
    who = [who for who, _ in told(server.bodies[-1])]
    assert who == ["user", "thought", "assistant", *["call"] * 2, *["result"] * 2, "user"]
    assert server.requests[-1].refusal is None


# -- answers that fail -----------------------------------------------------------------------------


def said(awl: Awl) -> list[JSON]:
    """The answers in the log."""
    return [entry["message"] for entry in awl.entries() if kind(entry) == "assistant"]


@pytest.mark.parametrize("origin", NAMES)
@pytest.mark.parametrize("how", [StreamError(), Drop(), End()], ids=["error", "drop", "end"])
def test_an_answer_that_breaks_off_is_kept_and_the_session_goes_on(
    awl: Awl, forks: Forks, server: StandIn, origin: str, how: Part
) -> None:
    configure(awl, server, first=origin)
    server.plays([Think(THOUGHT), Say(WORDS), how])
    done = forks(awl, "-p", "go", code=1)
    assert done.out == f"{WORDS}\n"
    assert done.err.startswith("awl: ")
    (answer,) = said(awl)
    assert answer["stopReason"] == "error"
    assert answer["content"][0] == {"type": "thinking", "thinking": THOUGHT}
    server.plays([Say("On.")])
    assert forks(awl, "--resume", "-p", "next").out == "On.\n"
    assert told(server.bodies[-1]) == [("user", "go"), ("assistant", WORDS), ("user", "next")]


@pytest.mark.parametrize("origin", NAMES)
@pytest.mark.parametrize(
    "parts",
    [[], [Say("")], [Say(" \n")], [Think(THOUGHT)]],
    ids=["none", "empty", "blank", "thought"],
)
def test_an_answer_that_says_nothing_is_not_sent(
    awl: Awl, forks: Forks, server: StandIn, origin: str, parts: list[Part]
) -> None:
    configure(awl, server, first=origin)
    server.plays(parts)
    forks(awl, "-p", "go")
    server.plays([Say("On.")])
    assert forks(awl, "--resume", "-p", "next").out == "On.\n"
    assert told(server.bodies[-1]) == [("user", "go"), ("user", "next")]


def test_nothing_but_calls_and_redacted_reasoning_go_there_and_back(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    for name in ("claude", "responses"):
        configure(awl, server, first=name)
        server.plays(
            [Redacted("secret"), Call("bash", {"command": "echo one"})],
            [Say("Done.")],
            [Say("On.")],
        )
        forks(awl, "-y", "-p", "go")
        forks(awl, "--resume", "-p", "next")
        first, _, last = server.requests[-3:]
        assert not first.refusal
        thought = [words for who, words in told(last.body) if who == "thought"]
        assert len(thought) == 1
        assert [who for who, _ in told(last.body)] == [
            "user", "thought", "call", "result", "assistant", "user",
        ]  # fmt: skip
        shutil.rmtree(awl.sessions)


# -- refused reasoning -----------------------------------------------------------------------------


def spoil_signature(awl: Awl) -> None:
    log = awl.log
    data = log.read_bytes()
    changed = data.replace(sign(THOUGHT).encode(), sign("something else").encode())
    assert changed != data
    log.write_bytes(changed)


def test_refused_reasoning_is_left_out_in_one_retry_and_the_log_says_nothing_of_it(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    server.plays([Think(THOUGHT), Call("bash", {"command": "echo one"})], [Say("Done.")])
    forks(awl, "-y", "-p", "go")
    spoil_signature(awl)
    before = awl.log.read_bytes()
    server.plays([Say("On.")])
    done = forks(awl, "--resume", "-p", "next")
    assert done.out == "On.\n"
    assert done.err.count("refused its own reasoning") == 1
    refused, retried = server.requests[2:]
    assert "Invalid `signature`" in str(refused.refusal)
    assert refused.body["thinking"]["type"] == "enabled"
    assert "thinking" not in retried.body
    assert [who for who, _ in told(retried.body)] == [
        "user", "call", "result", "assistant", "user",
    ]  # fmt: skip
    after = awl.log.read_bytes()
    assert after.startswith(before)
    added = [json.loads(line) for line in after[len(before) :].splitlines()]
    assert [kind(entry) for entry in added] == ["user", "assistant", "end"]
    assert b"refused" not in after[len(before) :]


def test_reasoning_that_was_refused_is_not_tried_again_in_the_turn(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    server.plays([Think(THOUGHT), Say("Done.")])
    forks(awl, "-p", "go")
    spoil_signature(awl)
    server.plays([Call("bash", {"command": "echo one"})], [Say("On.")])
    done = forks(awl, "-y", "--resume", "-p", "next")
    assert [request.refusal is None for request in server.requests[1:]] == [False, True, True]
    assert done.err.count("refused its own reasoning") == 1
    assert done.err.count("sent to the model: ") == 1


def test_a_request_that_is_refused_without_reasoning_too_is_told_once(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    server.plays([Think(THOUGHT), Say("Done.")])
    forks(awl, "-p", "go")
    server.plays(Fail(400, "no such thing"), Fail(400, "no such thing at all"), [Say("never")])
    done = forks(awl, "--resume", "-p", "next", code=1)
    assert done.err.count("no such thing at all") == 1
    assert len(server.requests) == 3
    assert kind(awl.entries()[-2]) == "user"
    server._answers.clear()
    server.plays([Say("On.")])
    assert forks(awl, "--resume", "-p", "again").out == "On.\n"
    assert told(server.bodies[-1])[2:] == [
        ("assistant", "Done."),
        ("user", "next"),
        ("user", "again"),
    ]


def test_a_request_without_reasoning_is_not_tried_again(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    server.plays(Fail(400, "no such thing"), [Say("never")])
    forks(awl, "-p", "go", code=1)
    assert len(server.requests) == 1
