"""Content from outside, through real tools and processes: stored, shown and sent safely.

And requests that are longer than the model can take: said, and nothing is lost.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib

import pytest
from running import HARMFUL, JSON, Awl, kind
from standin import Call, Fail, Say, StandIn, Think
from wires import NAMES, configure, told
from zygote import Forks

HARD = (
    "nul \x00 esc \x1b[31mred\x1b]0;title\x07 line\u2028sep\u2029ar\x85ators \x9b1m bidi \u202e end"
)


def results(awl: Awl) -> list[JSON]:
    """The tool results in the log, as the model was shown them."""
    return [
        block
        for entry in awl.entries()
        if kind(entry) == "user"
        for block in entry["message"]["content"]
        if block["type"] == "toolResult"
    ]


def sent_results(server: StandIn) -> list[str]:
    return [words for who, words in told(server.bodies[-1]) if who == "result"]


def go_on_everywhere(awl: Awl, forks: Forks, server: StandIn) -> None:
    """Every provider takes the session, and it can be looked at."""
    for name in NAMES:
        server.plays([Say("On.")])
        assert forks(awl, "--resume", "--provider", name, "-p", "next").out == "On.\n"
    assert all(request.refusal is None for request in server.requests)
    for options in ((), ("--events",), ("--json",)):
        shown = forks(awl, "sessions", "show", awl.id, *options)
        assert not HARMFUL.search(shown.out)
        assert "\u2028" not in shown.out or not options
    assert not HARMFUL.search(forks(awl, "sessions").out)


@pytest.mark.parametrize("name", NAMES)
def test_hard_characters_from_all_sides(awl: Awl, forks: Forks, server: StandIn, name: str) -> None:
    configure(awl, server, first=name)
    (awl.work / "hard.txt").write_bytes(HARD.replace("\x00", "").encode())
    server.plays(
        [
            Say(HARD, chunk=7),
            Call("read", {"path": "hard.txt"}),
            Call("bash", {"command": "printf 'a\\0b\\033[2Jc\\xe2\\x80\\xa8d'"}),
            Call("bash", {"command": "echo", HARD: HARD}),
            Call("bash\u2028\x1b[1m", {}),
        ],
        [Think("\x00\u2028"), Say("\x1b[31mDone\x07")],
    )
    done = forks(awl, "-y", "-p", HARD.replace("\x00", ""))
    assert not HARMFUL.search(done.out + done.err)
    assert b"\xe2\x80\xa8" not in awl.log.read_bytes()  # JavaScript would split a line there
    read, ran, wrong, unknown = results(awl)
    assert read["content"] == HARD.replace("\x00", "")
    assert ran["content"] == "a\0b\x1b[2Jc\u2028d"
    assert wrong["isError"]
    assert unknown["isError"]
    assert sent_results(server)[:2] == [read["content"], ran["content"]]
    words = [text for who, text in told(server.bodies[-1]) if who in ("user", "assistant")]
    assert words == [HARD.replace("\x00", ""), HARD]
    go_on_everywhere(awl, forks, server)


@pytest.mark.parametrize("name", NAMES)
def test_lone_surrogates_are_replaced_at_the_door(
    awl: Awl, forks: Forks, server: StandIn, name: str
) -> None:
    configure(awl, server, first=name)
    # As a server may send it: an escape in the text of JSON, which the SDK decodes.
    server.plays(
        [
            Think("\ud800 thought"),
            Say("half \ud83d", chunk=100),
            Call("bash", '{"command": "echo \\ud800 x"}'),
            Call("write", '{"path": "a\\udc80", "content": "\\ud800"}'),
        ],
        [Say("Done.")],
    )
    forks(awl, "-y", "-p", "go")
    log = awl.log.read_text()
    assert "half \ufffd" in log
    text = json.dumps(awl.entries(), ensure_ascii=False)
    assert not any(0xD800 <= ord(char) < 0xE000 for char in text)
    go_on_everywhere(awl, forks, server)


def test_output_that_is_not_text_is_kept_whole(awl: Awl, forks: Forks, server: StandIn) -> None:
    configure(awl, server)
    server.plays([Call("bash", {"command": "printf 'ok \\xff\\xfe\\x80 \\xc3'"})], [Say("Done.")])
    forks(awl, "-y", "-p", "go")
    (result,) = results(awl)
    assert result["content"].startswith("ok \ufffd")
    assert blob(awl, result["output"]) == b"ok \xff\xfe\x80 \xc3"
    go_on_everywhere(awl, forks, server)


def blob(awl: Awl, reference: JSON) -> bytes:
    data = awl.log.with_suffix(".blobs").joinpath(str(reference["blob"])).read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (reference["blob"], reference["size"])
    return data


def test_five_megabytes_are_kept_whole_and_head_and_tail_are_shown(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    command = "seq 1 800000"
    server.plays(
        [Call("bash", {"command": command}), Call("bash", {"command": command})], [Say("x")]
    )
    forks(awl, "-y", "-p", "go")
    whole = "".join(f"{n}\n" for n in range(1, 800_001)).encode()
    assert len(whole) > 5_000_000
    for result in results(awl):
        assert blob(awl, result["output"]) == whole
        assert result["content"].startswith("1\n2\n3\n")
        assert result["content"].endswith("\n799999\n800000\n")
        assert "left out here" in result["content"]
        assert len(result["content"]) < 60_000
    assert sent_results(server) == [result["content"] for result in results(awl)]
    assert awl.log.stat().st_size < 400_000
    go_on_everywhere(awl, forks, server)


def png(width: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" + b"\xff\0\0" * width))
    return b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b"")


def test_images_as_results_are_kept_and_sent_everywhere(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    (awl.work / "a.png").write_bytes(png())
    calls = [Call("read", {"path": "a.png"}), Call("bash", {"command": "echo one"})]
    server.plays(calls, [Say("Red.")])
    forks(awl, "-y", "-p", "go")
    go_on_everywhere(awl, forks, server)
    data = base64.b64encode(png()).decode()
    for request in server.requests[1:]:
        assert data in json.dumps(request.body)
    # A picture that is lost costs the picture.
    (kept,) = awl.log.with_suffix(".blobs").iterdir()
    kept.unlink()
    go_on_everywhere(awl, forks, server)
    for request in server.requests[-3:]:
        assert "[picture not available]" in json.dumps(request.body)


REFUSED_PICTURES = {
    "claude": "messages.2.content.0.tool_result.content.1: Could not process image",
    "chat": "Invalid content type. image_url is only supported by certain models.",
    "responses": "The image data you provided does not represent a valid image.",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_that_is_refused_does_not_block_the_session(
    awl: Awl, forks: Forks, server: StandIn, name: str
) -> None:
    configure(awl, server, first=name)
    (awl.work / "a.png").write_bytes(png()[:20])  # it begins like a picture
    refuses = Fail(400, REFUSED_PICTURES[name])
    server.plays([Call("read", {"path": "a.png"})], refuses, [Say("Seen.")], refuses, [Say("On.")])
    assert forks(awl, "-y", "-p", "go").out == "Seen.\n"
    done = forks(awl, "--resume", "-p", "next")
    assert done.out == "On.\n"
    assert done.err.count("the model refused a picture; asking without pictures") == 1
    data = base64.b64encode(png()[:20]).decode()
    assert [data in json.dumps(body) for body in server.bodies] == [False, True, False, True, False]
    assert all(request.refusal is None for request in server.requests)


INPUTS = (
    "not JSON",
    '{"command": "ec',
    '{"command": NaN}',
    '["command"]',
    '"command"',
    "null",
    '{"command": "echo x", "timeout": 1e999}',
    '{"command": "echo ' + "\\u0000" + '"}',
    '{"command": 12}',
    '{"command": "echo x", "command": "echo y"}',
    '{"deep": ' + "[" * 300 + "]" * 300 + "}",
    '{"deep": ' + "[" * 5000 + "]" * 5000 + "}",
    '{"big": ' + "9" * 5000 + "}",
)


@pytest.mark.parametrize("name", NAMES)
def test_tool_input_of_any_kind_is_kept_and_sent(
    awl: Awl, forks: Forks, server: StandIn, name: str
) -> None:
    configure(awl, server, first=name)
    server.plays([Call("bash", text) for text in INPUTS], [Say("Done.")])
    forks(awl, "-y", "-p", "go")
    (answer, _) = [entry for entry in awl.entries() if kind(entry) == "assistant"]
    assert [block["input"] for block in answer["message"]["content"]] == [*INPUTS]
    assert len(sent_results(server)) == len(INPUTS)
    go_on_everywhere(awl, forks, server)


# -- too long --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_that_is_too_long_is_told_and_taken_back_and_the_session_goes_on(
    awl: Awl, forks: Forks, name: str
) -> None:
    with StandIn(context_tokens=8000) as small, StandIn() as large:
        more = (
            f'name = "large"\ntype = "openai"\nmodel = "large"\nbase_url = "{large.openai_url}"\n'
        )
        configure(awl, small, more, first=name)
        small.plays([Say("Yes.")])
        forks(awl, "-p", "go")
        long = "word " * 8000
        done = forks(awl, "--resume", "-p", long, code=1)
        assert done.out == ""
        (line,) = done.err.splitlines()
        assert "more than the model can take" in line
        assert "--model" in line
        assert awl.entries()[-3]["message"]["content"][0]["text"] == long
        assert len(small.requests) == 2  # it is not tried again
        small.plays([Say("Yes again.")])
        assert forks(awl, "--resume", "-p", "short").out == "Yes again.\n"
        large.plays([Say("Long.")])
        assert forks(awl, "--resume", "--provider", "large", "-p", "next").out == "Long.\n"
        assert told(large.bodies[0]) == [
            ("user", "go"),
            ("assistant", "Yes."),
            ("user", "short"),
            ("assistant", "Yes again."),
            ("user", "next"),
        ]


def test_a_request_that_is_too_long_for_the_local_model(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    pytest.importorskip("xllamacpp")
    configure(awl, server, 'name = "local"\ntype = "local"\nmax_tokens = 1\n', first="local")
    long = "word " * 9000
    done = forks(awl, "-p", long, code=1)
    assert "--model" in done.err
    assert kind(awl.entries()[-3]) == "user"
    server.plays([Say("Long.")])
    assert forks(awl, "--resume", "--provider", "chat", "-p", "next").out == "Long.\n"
    assert told(server.bodies[0]) == [("user", "next")]
