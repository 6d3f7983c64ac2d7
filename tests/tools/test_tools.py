from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from awl.tools import all_tools

from .conftest import Tools

NAMES = ["bash", "read", "write", "edit", "find", "grep"]


def test_there_are_six_tools_and_three_can_change_something() -> None:
    assert [tool.spec.name for tool in all_tools()] == NAMES
    assert [tool.spec.name for tool in all_tools() if tool.mutates] == ["bash", "write", "edit"]


def test_schemas_are_plain_objects() -> None:
    for tool in all_tools():
        parameters = tool.spec.parameters
        assert parameters["type"] == "object" and parameters["additionalProperties"] is False
        text = msgspec.json.encode(parameters)
        assert b"$ref" not in text and b"$defs" not in text and b"anyOf" not in text


def test_importing_the_tools_imports_no_tool_and_no_asyncio() -> None:
    program = (
        "import sys, awl.tools;"
        "print([name for name in sys.modules if name.startswith('awl.tools.')],"
        " 'asyncio' in sys.modules, 'subprocess' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout == "[] False False\n"


@pytest.mark.parametrize(
    ("name", "input", "key"),
    [
        ("bash", {}, "command"),
        ("bash", {"command": None}, "command"),
        ("bash", {"command": 1}, "command"),
        ("bash", {"command": ""}, "command"),
        ("bash", {"command": "true", "cwd": "/"}, "cwd"),
        ("bash", {"command": "true", "timeout": "soon"}, "timeout"),
        ("bash", {"command": "true", "timeout": 0}, "timeout"),
        ("bash", {"command": "true", "timeout": 3601}, "timeout"),
        ("bash", {"command": "true", "timeout": "nan"}, "timeout"),
        ("bash", {"command": "true", "timeout": True}, "timeout"),
        ("bash", {"command": "a\0b"}, "command"),
        ("bash", {"command": "a\ud800b"}, "command"),
        ("read", {}, "path"),
        ("read", {"path": ["x"]}, "path"),
        ("read", {"path": "a\0b"}, "path"),
        ("read", {"path": "a\ud800b"}, "path"),
        ("read", {"path": "x", "offset": 0}, "offset"),
        ("read", {"path": "x", "limit": -1}, "limit"),
        ("write", {"path": "x"}, "content"),
        ("write", {"path": "x", "content": {}}, "content"),
        ("write", {"path": "x", "content": "\ud800"}, "content"),
        ("edit", {"path": "x", "new": ""}, "old"),
        ("edit", {"path": "x", "old": "", "new": ""}, "old"),
        ("edit", {"path": "x", "old": "a", "new": "\ud800"}, "new"),
        ("edit", {"path": "x", "old": "a", "new": "b", "all": "maybe"}, "all"),
        ("find", {}, "pattern"),
        ("find", {"pattern": "*", "limit": 0}, "limit"),
        ("grep", {"pattern": "x", "glob": 1}, "glob"),
    ],
)
def test_wrong_input_is_a_result_that_names_the_key(
    tools: Tools, name: str, input: dict[str, Any], key: str
) -> None:
    content = tools.bad(name, **input)
    assert content.startswith("invalid input: ") and key in content.split(". The ")[0]
    assert list(tools.cwd.iterdir()) == []


def test_null_stands_for_what_is_left_out_and_numbers_may_be_text(tools: Tools) -> None:
    assert tools.good("bash", command="echo a", timeout=None) == "a\n"
    assert tools.good("bash", command="echo a", timeout="30") == "a\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_call_is_described_in_one_line_whatever_its_input(name: str) -> None:
    (tool,) = [tool for tool in all_tools() if tool.spec.name == name]
    for input in ({}, {"command": 3, "path": ["a\nb"], "pattern": {}, "content": 1, "old": None}):
        assert tool.describe(input).isprintable()


def test_a_description_hides_nothing() -> None:
    bash, read, write, edit, find, grep = all_tools()
    assert bash.describe({"command": "a\nb\tc"}) == "$ a⏎b c"
    assert bash.describe({"command": "x\x1b[2K\r\u202e\u2028"}) == r"$ x\x1b[2K\r\u202e\u2028"
    long = bash.describe({"command": "x" * 500})
    assert len(long) < 150 and long.endswith("… (+382 characters)")
    assert read.describe({"path": "a.py"}) == "read a.py"
    assert read.describe({"path": "a.py", "offset": 5, "limit": 3}) == (
        "read a.py from line 5 (3 lines)"
    )
    assert write.describe({"path": "a.py", "content": "abc"}) == "write a.py (3 characters)"
    assert edit.describe({"path": "a.py", "all": True}) == "edit a.py (all occurrences)"
    assert find.describe({"pattern": "*.py", "path": "src"}) == "find *.py in src"
    assert grep.describe({"pattern": "x y", "glob": "*.py"}) == "grep x y in *.py"
