"""Bringing a configuration file up to date: what it lacks is added, with its default and what it
means, and nothing else of it changes, not one byte."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from awl.config import default_providers, default_settings, parse, read_text
from awl.errors import ConfigError
from awl.log.durable import create_private, sync, sync_directory, write_all
from awl.toml import Key, Statement, line_of, statements

_BOM: Final = "\ufeff"


class Migration(NamedTuple):
    """What was, or would be, added to a file. `added` are the names of settings and tables;
    `backup` is where the file as it was is kept; None when nothing was written."""

    path: Path
    before: str
    after: str
    added: tuple[str, ...]
    backup: Path | None

    def diff(self) -> Iterator[str]:
        """A unified diff, a line at a time, without ends of lines."""
        import difflib

        name = str(self.path)
        before, after = map(_lines, (self.before, self.after))
        for line in difflib.unified_diff(before, after, name, name, lineterm=""):
            yield line.removesuffix("\r")


def migrate(path: Path, *, dry_run: bool = False) -> Migration:
    """Add to a configuration file what it lacks. The file as it was is kept beside it.

    Raises:
        ConfigError: there is no such file, it is not valid TOML, or a table that lacks something
            is written in a way that cannot be added to. Nothing was written.
        OSError: it cannot be read or written.
    """
    before = read_text(path, regular_only=True)
    if before is None:
        raise ConfigError(f"there is no {path}: `awl config init` writes it", path=path)
    after, added = _Text(path, before).migrated()
    if dry_run or not added:
        return Migration(path, before, after, added, None)
    return Migration(path, before, after, added, _replace(path, before, after))


class _Addition(NamedTuple):
    at: int
    text: str


class _Text:
    """The text of a file, and where in it something can be added."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text
        self._table = parse(path, text)
        self._statements = list(statements(text))
        self._newline = "\r\n" if text.split("\n")[0].endswith("\r") else "\n"

    def migrated(self) -> tuple[str, tuple[str, ...]]:
        """The text with what it lacked, and the names of that."""
        additions: list[_Addition] = []
        tables: list[str] = []
        wanted: dict[str, Any] = {}
        added: list[str] = []
        for section, settings in default_settings().items():
            there = self._section(section)
            missing = {name: found for name, found in settings.items() if name not in there}
            for name, (default, _) in missing.items():
                _put(wanted, (*section, name), default)
                added.append(".".join((*section, name)))
            rows = [row for _, row in missing.values()]
            if rows and (place := self._place(section)):
                additions.append(self._addition(*place, rows))
            elif rows:
                tables.append("\n".join((f"[{'.'.join(section)}]", *rows)) + "\n")
        if "llm" not in self._table:
            tables += default_providers()
            wanted |= parse(self._path, "\n".join(default_providers()))
            added.append("llm.providers")
        after = self._with(additions, tables)
        self._check(after, wanted)
        return after, tuple(added)

    def _section(self, section: tuple[str, ...]) -> Mapping[str, Any]:
        table: Any = self._table
        for length, name in enumerate(section, 1):
            table = table.get(name, {})
            if not isinstance(table, dict):
                raise self._refused(section[:length], "must be a table")
        found: Mapping[str, Any] = table
        return found

    def _place(self, section: tuple[str, ...]) -> tuple[Statement, str] | None:
        """The statement after which settings of a table are added, and what their names begin
        with there; None when the file has no such table."""
        for found in self._statements:
            if not found.is_header and section[: len(found.key)] == found.key:
                raise self._refused(
                    found.key,
                    "is written inline, and nothing can be added to that: write it as"
                    f" [{'.'.join(map(str, found.key))}], a setting a line",
                )
        if own := [found for found in self._statements if found.table == section]:
            return own[-1], ""
        # `session.enabled = true`, under the header of a table around it or under none
        dotted = [
            found
            for found in self._statements
            if found.key[: len(section)] == section and len(found.table) < len(section)
        ]
        if not dotted:
            return None
        return dotted[-1], "".join(f"{part}." for part in section[len(dotted[-1].table) :])

    def _addition(self, after: Statement, prefix: str, rows: list[str]) -> _Addition:
        indent = ""
        if not after.is_header:
            begin = self._text.rfind("\n", 0, after.start) + 1
            indent = self._text[begin : after.start].removeprefix(_BOM)
        return _Addition(after.end, "".join(f"{indent}{prefix}{row}\n" for row in rows))

    def _with(self, additions: list[_Addition], tables: list[str]) -> str:
        out = ""
        at = 0
        for addition in sorted(additions, key=lambda addition: addition.at):
            out = self._whole_lines(out + self._text[at : addition.at])
            out += addition.text.replace("\n", self._newline)
            at = addition.at
        out += self._text[at:]
        for table in tables:
            out = self._whole_lines(out)
            if out.removeprefix(_BOM):
                out += self._newline
            out += table.replace("\n", self._newline)
        return out

    def _whole_lines(self, text: str) -> str:
        return text if text.removeprefix(_BOM)[-1:] in ("", "\n") else text + self._newline

    def _check(self, after: str, wanted: Mapping[str, Any]) -> None:
        """That the file says what it said, and what was wanted, and nothing else."""
        try:
            holds = parse(self._path, after) == _merged(self._table, wanted)
        except ConfigError:
            holds = False
        if not holds:
            raise ConfigError(
                f"{self._path} is written in a way that awl cannot add to: move it aside,"
                " write a new one with `awl config init`, and copy your settings into it",
                path=self._path,
            )

    def _refused(self, key: Key, why: str) -> ConfigError:
        name = ".".join(map(str, key))
        lines = [line_of(self._text, one.start) for one in self._statements if one.key == key]
        where = f"{self._path}:{lines[0]}" if lines else str(self._path)
        return ConfigError(f"{where}: {name} {why}", path=self._path, key=name)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _put(table: dict[str, Any], key: Key, value: object) -> None:
    *outer, name = map(str, key)
    for part in outer:
        table = table.setdefault(part, {})
    table[name] = value


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        there = merged.get(key)
        merged[key] = _merged(there, value) if isinstance(there, dict) else value
    return merged


# -- files -----------------------------------------------------------------------------------------


def _replace(path: Path, before: str, after: str) -> Path:
    """Let the file hold another text from one moment to the next; where the old one is kept.

    What a symbolic link leads to is replaced, and the link stays. Mode and, where that is allowed,
    owner stay as they were.
    """
    target = path.resolve(strict=True)
    old = target.stat()
    unborn = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    _write(unborn, after, old)
    try:
        if target.read_bytes() != before.encode():
            raise ConfigError(f"{path} was changed meanwhile: try again", path=path)
        backup = _keep(path, before, old)
        unborn.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            unborn.unlink()
        raise
    sync_directory(target.parent)
    return backup


def _keep(path: Path, text: str, old: os.stat_result) -> Path:
    """Keep a file's text beside it, as `.bak`, never over another."""
    for number in range(1, 1000):
        kept = path.with_name(f"{path.name}.bak{f'-{number}' * (number > 1)}")
        with contextlib.suppress(FileExistsError):
            _write(kept, text, old)
            sync_directory(kept.parent)
            return kept
    raise ConfigError(f"there are too many backups beside {path}: remove some", path=path)


def _write(path: Path, text: str, like: os.stat_result) -> None:
    """Write a new file with the mode and owner of another. Durable on return.

    Raises:
        OSError: it could not be written; nothing of it is left.
    """
    out = create_private(path)
    try:
        write_all(out, text.encode())
        if hasattr(os, "fchown"):
            with contextlib.suppress(OSError):
                os.fchown(out, like.st_uid, like.st_gid)
        if hasattr(os, "fchmod"):
            os.fchmod(out, stat.S_IMODE(like.st_mode))
        sync(out)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(out)
