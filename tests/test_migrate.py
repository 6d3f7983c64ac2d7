"""A configuration file that is brought up to date: what is added, and that nothing else changes."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import Awl

from awl.config import Config, default_settings, default_toml, load
from awl.errors import ConfigError
from awl.migrate import Migration, migrate


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def migrated(file: Path, text: str) -> Migration:
    file.write_bytes(text.encode())
    done = migrate(file)
    assert file.read_bytes() == done.after.encode()
    return done


def refused(file: Path, text: str) -> str:
    """What is said of a file that cannot be migrated, which stays as it is, alone."""
    file.write_bytes(text.encode())
    with pytest.raises(ConfigError) as caught:
        migrate(file)
    assert file.read_bytes() == text.encode()
    assert list(file.parent.iterdir()) == [file]
    return str(caught.value).removeprefix(f"{file}:")


def effect(file: Path) -> Config:
    """What a file means."""
    config = load({"AWL_CONFIG": str(file), "HOME": "/h"})
    return msgspec.structs.replace(config, warnings=())


def complete(text: str) -> bool:
    """Whether a file has every setting."""
    table = tomllib.loads(text.removeprefix("\ufeff"))
    for section, settings in default_settings().items():
        found: Any = table
        for name in section:
            found = found[name]
        if not settings.keys() <= found.keys():
            return False
    return "providers" in table["llm"]


# -- what is added ---------------------------------------------------------------------------------


def test_an_empty_file_becomes_the_default_one(file: Path) -> None:
    done = migrated(file, "")
    assert default_toml().endswith(done.after)
    assert done.added[0] == "session.enabled" and done.added[-1] == "llm.providers"


def test_settings_go_to_the_end_of_their_table_as_it_is_written(file: Path) -> None:
    done = migrated(
        file,
        "[session]\n  enabled = false  # no\n\n# of the agent\n[agent]\n"
        "[other]\nx = '''\n[agent]'''",
    )
    lines = done.after.splitlines()
    assert lines[:3] == ["[session]", "  enabled = false  # no", lines[2]]
    assert lines[2].startswith('  data_dir = ""')
    assert lines[5:8] == ["", "# of the agent", "[agent]"]
    assert lines[8].startswith('provider = ""')
    assert complete(done.after)


@pytest.mark.parametrize(
    "text",
    [
        "session.enabled = true",
        "session.condense.threshold = 0.5\n[agent]\nmax_turns = 7",
        "[session]\ncondense.threshold = 0.5\nresume = { show_banner = true, "
        "expand_default_lines = 3 }",
        "[session.condense]\nthreshold = 0.5\n",
        "[session.condense]\n[session]\nenabled = true\n",
        '[ "session" . condense ]  # here\nthreshold = 0.5\n[llm]\n',
    ],
)
def test_tables_in_every_spelling_are_added_to_and_never_written_twice(
    file: Path, text: str
) -> None:
    file.write_text(text)
    before = effect(file)
    done = migrated(file, text)
    assert "llm" in text or complete(done.after)
    assert effect(file) == before
    assert migrate(file).added == ()


def test_providers_are_added_only_where_nothing_is_said_of_them(file: Path) -> None:
    text = "[[llm.providers]]\ntype = 'local'\n"
    done = migrated(file, text)
    assert done.after.startswith(text)
    assert done.after.count("llm") == 1
    assert effect(file).providers[0].name == "local"


def test_serving_is_not_built_and_gets_no_section(file: Path) -> None:
    assert "[serve]" not in migrated(file, "").after
    assert "[serve]" in migrated(file, "[serve]\nmax_sessions = 3\n").after


# -- what stays ------------------------------------------------------------------------------------

_NOISE = st.sampled_from(["", "# [session]", "\t", "# enabled = true"])
_VALUES = {
    "enabled": "false",
    "data_dir": "'''\n[agent]'''",
    "max_event_log_mb": "1_000",
    "threshold": "5e-1",
    "show_banner": "false  # no",
    "approval": '"deny"',
}


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A valid file that says some of the settings, in any of TOML's ways."""
    root: list[str] = []
    tables: dict[str, list[str]] = {}
    made: set[str] = set()  # tables that have settings above all headers, and may have no header
    for section, settings in default_settings().items():
        names = draw(st.lists(st.sampled_from(sorted(settings)), unique=True))
        rows = [f"{n} = {_VALUES[n]}" if n in _VALUES else settings[n][1] for n in names]
        title = ".".join(section)
        style = draw(st.sampled_from(["header", "dotted", "absent"]))
        if style == "dotted" and rows:
            root += [f"{title}.{row}" for row in rows]
            made |= {title, section[0]}
        elif style == "header" and title not in made:
            tables[title] = [f"[{title}]", *rows]
    for title in made & tables.keys():
        del tables[title]
    if draw(st.booleans()):
        tables["llm"] = ["[[llm.providers]]", 'type = "local"', "[other]", 'x = """\n[agent]"""']
    parts = [root, *draw(st.permutations([*tables.values()]))]
    lines = [line for part in parts for row in part for line in (row, draw(_NOISE))]
    text = "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n\n"]))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    return draw(st.sampled_from(["", "\ufeff"])) + text


@given(text=documents())
def test_nothing_changes_but_what_is_added(tmp_path_factory: Any, text: str) -> None:
    file = tmp_path_factory.mktemp("home") / "config.toml"
    file.write_bytes(text.encode())
    before = effect(file)
    done = migrate(file)
    assert complete(done.after)
    assert effect(file) == before
    assert kept_in(text, done.after)
    assert kept_in(
        [line.rstrip() for line in text.lstrip("\ufeff").split("\n")],
        map(str.rstrip, done.after.lstrip("\ufeff").split("\n")),
    )
    assert migrate(file).added == ()


def kept_in(before: Iterable[str], after: Iterable[str]) -> bool:
    """Whether nothing of what was there was taken away or moved."""
    rest = iter(after)
    return all(one in rest for one in before)


def test_line_ends_and_a_missing_last_one_stay(file: Path) -> None:
    done = migrated(file, "\ufeff# mine\r\n[agent]\r\nmax_turns = 3")
    assert done.after.startswith("\ufeff# mine\r\n[agent]\r\nmax_turns = 3\r\nprovider")
    assert "\n" not in done.after.replace("\r\n", "")


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agent]\nmax_turns = \n", "2: not valid TOML"),
        ("\n\nsession = { enabled = true }\n", "3: session is written inline"),
        ("[session]\ncondense = {}\n", "2: session.condense is written inline"),
        ("agent = 3\n", "1: agent must be a table"),
        ("x = 1\n[[session]]\n", "session must be a table"),
        ("[session]\nresume = true\n", "2: session.resume must be a table"),
    ],
)
def test_what_cannot_be_added_to_is_refused_with_its_line(file: Path, text: str, said: str) -> None:
    assert said in refused(file, text)


def test_an_inline_table_that_lacks_nothing_is_no_hindrance(file: Path) -> None:
    text = "session.resume = { show_banner = true, expand_default_lines = 3 }\n"
    assert complete(migrated(file, text).after)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="awl config init"):
        migrate(tmp_path / "config.toml")
    with pytest.raises(ConfigError, match="not a regular file"):
        migrate(tmp_path)


# -- the file --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400])
def test_the_old_file_is_kept_and_the_mode_stays(file: Path, mode: int) -> None:
    file.with_name("config.toml.bak").write_text("an older one")
    text = "[agent]\n"
    file.write_text(text)
    file.chmod(mode)
    done = migrate(file)
    assert done.backup == file.with_name("config.toml.bak-2")
    assert done.backup.read_text() == text
    assert file.with_name("config.toml.bak").read_text() == "an older one"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (file, done.backup)} == {mode}
    assert len(list(file.parent.iterdir())) == 3


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "awl.toml"
    target.parent.mkdir()
    target.write_text("[agent]\n")
    link = tmp_path / "config.toml"
    link.symlink_to(target)
    done = migrate(link)
    assert link.is_symlink()
    assert target.read_text() == done.after != "[agent]\n"
    assert done.backup == tmp_path / "config.toml.bak"


def test_a_dry_run_writes_nothing_and_shows_what_it_would(awl: Awl) -> None:
    before = awl.config.read_text()
    shown = awl("config", "migrate", "--dry-run")
    assert "+[session.condense]" in shown.lines
    assert awl.config.read_text() == before
    assert "nothing was written" in shown.err
    done = awl("--migrate-config")
    assert done.out == shown.out
    assert ".bak" in done.err
    assert "lacks nothing" in awl("config", "migrate").err
    assert awl("-p", "Hi").out == "Hello there.\n"


def test_hostile_text_in_the_file_is_shown_harmless(awl: Awl) -> None:
    awl.config.write_bytes("[agent]\n# \x9b31m\u202e\n".encode())
    shown = awl("config", "migrate", "--dry-run").out
    assert "\\x9b31m\\u202e" in shown


def test_migrate_config_goes_alone(awl: Awl) -> None:
    awl("--migrate-config", "-p", "Hi", code=2)
    awl("--migrate-config", "sessions", code=2)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_an_error(awl: Awl) -> None:
    awl.config.parent.chmod(0o500)
    try:
        awl("config", "migrate", code=1)
    finally:
        awl.config.parent.chmod(0o700)
