"""Settings: `config.toml` and the environment, read into typed structs.

The file is `$AWL_CONFIG`, else `awl/config.toml` in `$XDG_CONFIG_HOME`, else in `~/.config`.
A project's own `.awl/config.toml` is read for `[session.condense]` and `[session.resume]` only: a
cloned repository must not choose where data goes or which tools run.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from awl.errors import ConfigError

if TYPE_CHECKING:
    from awl.toml import Key

MAX_BYTES: Final = 1 << 20
"""A configuration file that is larger is refused: it is something else."""

MAX_WARNINGS: Final = 20
"""A file in a cloned repository must not flood the terminal."""


class Condense(msgspec.Struct, frozen=True, kw_only=True):
    """`[session.condense]`: when older history is sent as a summary, and what is not.

    `condense_provider` names the provider that summarises; empty: the session's own. `threshold` is
    a part of what the model takes in one request. `keep_recent` counts entries.
    """

    condense_provider: str = ""
    threshold: float = 0.85
    keep_recent: int = 20


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """`[session.resume]`."""

    show_banner: bool = True
    expand_default_lines: int = 20


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[session]`."""

    enabled: bool = True
    data_dir: str = ""
    encrypt: bool = False
    max_event_log_mb: int = 256
    condense: Condense = Condense()
    resume: Resume = Resume()


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[agent]`. `approval`: ask, auto or deny."""

    provider: str = ""
    approval: str = "ask"
    max_turns: int = 50


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[llm.providers]]`. `type`: anthropic, openai, local or scripted.

    `base_url` empty means the provider type's own endpoint. `wire` (openai only): chat or
    responses. `path` (scripted: the file of turns; local: a GGUF file instead of the shipped one).
    `context_window` is in tokens.
    """

    name: str
    type: str
    model: str = ""
    api_key_env: str = ""
    base_url: str = ""
    context_window: int = 0
    wire: str = "chat"
    path: str = ""
    max_tokens: int = 0
    thinking_budget: int = 0

    @property
    def endpoint(self) -> str | None:
        """Where requests go, when it is not the provider type's own place."""
        return self.base_url or None


BUILT_IN: Final = (
    ProviderSettings(
        name="anthropic",
        type="anthropic",
        model="claude-sonnet-4-20250514",
        api_key_env="ANTHROPIC_API_KEY",
        context_window=200_000,
    ),
    ProviderSettings(
        name="openai",
        type="openai",
        model="gpt-4o",
        api_key_env="OPENAI_API_KEY",
        context_window=128_000,
    ),
    ProviderSettings(
        name="local", type="local", model="SmolLM2-135M-Instruct", context_window=8192
    ),
)
"""The providers that are there without a configuration, each unless its name is taken."""


class Config(msgspec.Struct, frozen=True):
    """All settings. `path` is the file that was read, None when there is none.

    `warnings` are lines for a person: keys that are not known, sections that are not honoured.
    """

    session: SessionSettings = SessionSettings()
    agent: AgentSettings = AgentSettings()
    providers: tuple[ProviderSettings, ...] = BUILT_IN
    path: Path | None = None
    warnings: tuple[str, ...] = ()


# --- where things are -----------------------------------------------------------------------------


def config_path(environ: Mapping[str, str]) -> Path:
    """Where the configuration file is, or would be."""
    if named := environ.get("AWL_CONFIG"):
        return _expand(named, environ).absolute()
    return _xdg("XDG_CONFIG_HOME", ".config", environ) / "awl" / "config.toml"


def sessions_dir(config: Config, environ: Mapping[str, str]) -> Path:
    """Where sessions live. The directory need not exist."""
    if named := environ.get("AWL_SESSION_DIR"):
        return _expand(named, environ).absolute()
    if config.session.data_dir:
        folder = config.path.parent if config.path else Path.cwd()
        return folder / _expand(config.session.data_dir, environ)
    return _xdg("XDG_DATA_HOME", ".local/share", environ) / "awl" / "sessions"


def _xdg(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    """An XDG base directory; the specification says that relative values are to be ignored."""
    given = environ.get(variable, "")
    return Path(given) if given.startswith("/") else _home(environ) / default


def _home(environ: Mapping[str, str]) -> Path:
    if home := environ.get("HOME"):
        return Path(home)
    try:
        return Path.home()
    except RuntimeError as error:
        raise ConfigError("no home directory is known: set HOME") from error


def _expand(text: str, environ: Mapping[str, str]) -> Path:
    """A path with a leading `~` or `~user` replaced by that home directory."""
    if text == "~" or text.startswith("~/"):
        return _home(environ) / text[2:]
    try:
        return Path(text).expanduser()
    except RuntimeError:  # no such user: then it is a name like any other
        return Path(text)


# --- choosing a provider --------------------------------------------------------------------------


def choose_provider(
    config: Config, environ: Mapping[str, str], name: str | None = None
) -> ProviderSettings:
    """The provider of this name; else the configured default; else the first one usable now.

    Usable is one that needs no key or whose key is in the environment. Configured providers come
    before the built-in ones, and among those the local model comes last.
    """
    if wanted := name or config.agent.provider:
        for provider in config.providers:
            if provider.name == wanted:
                return provider
        raise ConfigError(
            f"no provider is named {_quote(wanted)}: choose {_names(config.providers)}",
            path=config.path,
            key=None if name else "agent.provider",
        )
    for provider in config.providers:
        if has_key(provider, environ):
            return provider
    raise ConfigError(
        f"no provider can be used: set {' or '.join(p.api_key_env for p in config.providers)}",
        path=config.path,
    )


def has_key(provider: ProviderSettings, environ: Mapping[str, str]) -> bool:
    """Whether a provider needs no key, or its key is in the environment."""
    return not provider.api_key_env or bool(environ.get(provider.api_key_env, "").strip())


def _names(providers: tuple[ProviderSettings, ...]) -> str:
    return _alternatives(provider.name for provider in providers)


# --- reading --------------------------------------------------------------------------------------


def load(environ: Mapping[str, str], cwd: Path | None = None) -> Config:
    """The settings that hold here. With a `cwd`, its project file is read too.

    Raises `ConfigError`, which names file, line, key and value, and says what is allowed.
    """
    path = config_path(environ)
    warnings: list[str] = []
    user = _Source.read(path, warnings)
    if user is None and environ.get("AWL_CONFIG"):
        warnings.append(f"$AWL_CONFIG names {path}, which does not exist: the defaults are used")
    project = None
    if cwd is not None and not _same_file(cwd / ".awl" / "config.toml", path):
        project = _Source.read(cwd / ".awl" / "config.toml", warnings, regular_only=True)

    settings = _user_settings(user, environ) if user else _Settings({}, {}, {}, {}, ())
    condense, resume = _project_settings(project) if project else ({}, {})
    config = Config(
        session=SessionSettings(
            **settings.session,
            condense=Condense(**{**settings.condense, **condense}),
            resume=Resume(**{**settings.resume, **resume}),
        ),
        agent=AgentSettings(**settings.agent),
        providers=_with_built_in(settings.providers),
        path=path if user else None,
        warnings=_first(warnings),
    )
    names = [provider.name for provider in config.providers]
    for source, key, value in (
        (user, ("agent", "provider"), settings.agent.get("provider")),
        (user, ("session", "condense", "condense_provider"), settings.condense.get(_CONDENSER)),
        (project, ("session", "condense", "condense_provider"), condense.get(_CONDENSER)),
    ):
        if source and value and value not in names:
            raise source.wrong(key, value, "must name a provider: " + _names(config.providers))
    return config


def _first(warnings: list[str]) -> tuple[str, ...]:
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS:] = [f"and {len(warnings) - MAX_WARNINGS} more warnings"]
    return tuple(warnings)


_CONDENSER: Final = "condense_provider"


class _Settings(NamedTuple):
    """What a file sets, checked; what it does not set is absent."""

    session: dict[str, Any]
    condense: dict[str, Any]
    resume: dict[str, Any]
    agent: dict[str, Any]
    providers: tuple[ProviderSettings, ...]


class _Allowed(NamedTuple):
    """A rule for a value, and the words that state it."""

    holds: Callable[[Any], bool]
    words: str


def _at_least(least: int) -> _Allowed:
    return _Allowed(lambda value: bool(value >= least), f"must be a whole number from {least} on")


def _one_of(*choices: str) -> _Allowed:
    return _Allowed(lambda value: value in choices, "must be " + _alternatives(choices))


def _is_base_url(value: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _alternatives(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


_PATH: Final = _Allowed(lambda value: "\0" not in value, "must be a path, without a NUL")

_RULES: Final[Mapping[type[msgspec.Struct], Mapping[str, _Allowed]]] = {
    SessionSettings: {"max_event_log_mb": _at_least(1), "data_dir": _PATH},
    Condense: {
        "threshold": _Allowed(lambda value: 0 < value <= 1, "must be above 0 and at most 1"),
        "keep_recent": _at_least(0),
    },
    Resume: {"expand_default_lines": _at_least(0)},
    AgentSettings: {"approval": _one_of("ask", "auto", "deny"), "max_turns": _at_least(1)},
    ProviderSettings: {
        "name": _Allowed(
            lambda value: bool(value) and value.isprintable() and not re.search(r"[\s/]", value),
            "must be a word, without spaces and without /",
        ),
        "type": _one_of("anthropic", "openai", "local", "scripted"),
        "base_url": _Allowed(
            lambda value: value == "" or _is_base_url(value),
            "must be an address that begins with http:// or https://",
        ),
        "wire": _one_of("chat", "responses"),
        "path": _PATH,
        "context_window": _at_least(0),
        "max_tokens": _at_least(0),
        "thinking_budget": _at_least(0),
    },
}

_TYPE_WORDS: Final[Mapping[type, str]] = {
    bool: "must be true or false",
    int: "must be a whole number",
    float: "must be a number",
    str: "must be text in quotes",
}


def read_text(path: Path, *, regular_only: bool = False) -> str | None:
    """What a configuration file holds, to the byte; None when there is none.

    Raises:
        ConfigError: it cannot be read, is no text, or too large; with `regular_only`, also if it is
            a pipe or a device.
    """
    try:
        if regular_only and not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is not a regular file: remove it", path=path)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{path} cannot be read: {reason}", path=path) from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES >> 20} MiB", path=path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not valid UTF-8", path=path) from error


def parse(path: Path, text: str) -> dict[str, Any]:
    """What the text of a configuration file says.

    Raises:
        ConfigError: it is not valid TOML; the error names the line.
    """
    import tomllib

    text = text.removeprefix("\ufeff")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply", path=path) from error
    except ValueError as error:
        where, what = _toml_fault(str(error), text)
        raise ConfigError(f"{path}:{where}: not valid TOML: {what}", path=path) from error


class _Source:
    """One file while it is read: its table, the lines of its keys, and where warnings go."""

    def __init__(self, path: Path, text: str, warnings: list[str]) -> None:
        self.path, self._warnings = path, warnings
        self._lines: Callable[[], dict[Key, int]] = cache(lambda: _key_lines(text))
        self.table = parse(path, text)

    @classmethod
    def read(cls, path: Path, warnings: list[str], *, regular_only: bool = False) -> _Source | None:
        """The file, or None when there is none. `regular_only` refuses pipes and devices."""
        text = read_text(path, regular_only=regular_only)
        return None if text is None else cls(path, text, warnings)

    def place(self, key: Key) -> str:
        """`file:line` of a key, or of the nearest table around it that has a line of its own."""
        lines = self._lines()
        for length in range(len(key), 0, -1):
            if key[:length] in lines:
                return f"{self.path}:{lines[key[:length]]}"
        return str(self.path)

    def wrong(self, key: Key, value: object, words: str) -> ConfigError:
        """The error for a value that is not allowed."""
        return self.refused(key, f"is {_show(value)}: it {words}")

    def refused(self, key: Key, words: str) -> ConfigError:
        """An error about a key that does not repeat its value."""
        name = _name(key)
        return ConfigError(f"{self.place(key)}: {name} {words}", path=self.path, key=name)

    def warn(self, key: Key, words: str) -> None:
        self._warnings.append(f"{self.place(key)}: {_name(key)} {words}")

    def warn_unknown(self, key: Key, known: tuple[str, ...]) -> None:
        import difflib

        near = difflib.get_close_matches(str(key[-1]), known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        self.warn(key, f"is not a setting and is ignored{hint}")

    def subtable(self, table: Mapping[str, Any], *key: str) -> dict[str, Any]:
        """The table under the last part of `key`; empty when it is not there."""
        value = table.get(key[-1], {})
        if not isinstance(value, dict):
            raise self.wrong(key, value, "must be a table")
        return value

    def values(
        self, table: Mapping[str, Any], key: Key, defaults: msgspec.Struct, tables: int = 0
    ) -> dict[str, Any]:
        """The settings in `table` that the struct of `defaults` has, checked.

        The last `tables` fields of the struct are tables of their own and are left to the caller.
        """
        kind = type(defaults)
        known = kind.__struct_fields__
        plain = known[: len(known) - tables]
        found: dict[str, Any] = {}
        for name, value in table.items():
            if name in plain:
                expected = type(getattr(defaults, name))
                if type(value) is int and expected is float:
                    value = float(value)
                if type(value) is not expected:
                    raise self.wrong((*key, name), value, _TYPE_WORDS[expected])
                rule = _RULES[kind].get(name)
                if rule and not rule.holds(value):
                    raise self.wrong((*key, name), value, rule.words)
                found[name] = value
            elif name not in known:
                self.warn_unknown((*key, name), known)
        return found


def _user_settings(source: _Source, environ: Mapping[str, str]) -> _Settings:
    known = ("session", "agent", "llm", "serve")
    for name in source.table:
        if name not in known:
            source.warn_unknown((name,), known)
    if "serve" in source.table:
        source.subtable(source.table, "serve")
        source.warn(("serve",), "is ignored: serving is not built yet")

    table = source.subtable(source.table, "session")
    session = source.values(table, ("session",), SessionSettings(), tables=2)
    if session.get("encrypt"):
        raise source.wrong(
            ("session", "encrypt"),
            True,
            "must be false: encryption is not built yet (file permissions protect the logs)",
        )
    agent = source.subtable(source.table, "agent")
    return _Settings(
        session,
        _condense(source, table),
        _resume(source, table),
        source.values(agent, ("agent",), AgentSettings()),
        _providers(source, environ),
    )


def _project_settings(source: _Source) -> tuple[dict[str, Any], dict[str, Any]]:
    ignored = "is ignored: a project may set only [session.condense] and [session.resume]"
    table = source.subtable(source.table, "session")
    for name in source.table:
        if name != "session":
            source.warn((name,), ignored)
    for name in table:
        if name not in ("condense", "resume"):
            source.warn(("session", name), ignored)
    return _condense(source, table), _resume(source, table)


def _condense(source: _Source, session: Mapping[str, Any]) -> dict[str, Any]:
    table = source.subtable(session, "session", "condense")
    return source.values(table, ("session", "condense"), Condense())


def _resume(source: _Source, session: Mapping[str, Any]) -> dict[str, Any]:
    table = source.subtable(session, "session", "resume")
    return source.values(table, ("session", "resume"), Resume())


def _providers(source: _Source, environ: Mapping[str, str]) -> tuple[ProviderSettings, ...]:
    llm = source.subtable(source.table, "llm")
    for name in llm:
        if name != "providers":
            source.warn_unknown(("llm", name), ("providers",))
    tables = llm.get("providers", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise source.wrong(
            ("llm", "providers"), tables, "must be tables, each under [[llm.providers]]"
        )
    providers: dict[str, ProviderSettings] = {}
    for index, table in enumerate(tables):
        key = ("llm", "providers", index)
        provider = _provider(source, key, table, environ)
        if provider.name in providers:
            raise source.wrong((*key, "name"), provider.name, "is taken: names must differ")
        providers[provider.name] = provider
    return tuple(providers.values())


def _provider(
    source: _Source, key: Key, table: Mapping[str, Any], environ: Mapping[str, str]
) -> ProviderSettings:
    """One `[[llm.providers]]`, with what its type implies filled in."""
    # Both may hold a secret by mistake, so what they hold is not repeated in the error.
    if isinstance(url := table.get("base_url"), str) and "@" in url.partition("?")[0]:
        raise source.refused(
            (*key, "base_url"),
            "must not hold a user name or password: put the key into the environment and name"
            " the variable in api_key_env",
        )
    if isinstance(env := table.get("api_key_env"), str) and not re.fullmatch(r"\w*", env, re.A):
        raise source.refused(
            (*key, "api_key_env"),
            "must be the name of an environment variable, not the key itself",
        )
    found = source.values(table, key, ProviderSettings(name="", type=""))
    if "type" not in found:
        raise source.refused(key, "has no type: it " + _RULES[ProviderSettings]["type"].words)
    kind = found["type"]
    found.setdefault("name", kind)
    if found.get("path"):
        found["path"] = str(source.path.parent / _expand(found["path"], environ))
    if kind == "scripted":
        if not found.get("path"):
            raise source.refused(key, "has no path: it must name the file of turns to play")
        found["model"] = found.get("model") or "scripted"
        return ProviderSettings(**found)

    default = next(provider for provider in BUILT_IN if provider.type == kind)
    if kind == "local":
        stem = Path(found.get("path", "")).stem
        found["model"] = found.get("model") or stem or default.model
    elif found.get("base_url"):
        # Another server: the key of the provider's own place must not be sent there unasked.
        if not found.get("model"):
            raise source.refused(key, "has a base_url but no model: name the model to ask for")
        return ProviderSettings(**found)
    for name in ("model", "api_key_env", "context_window"):
        found[name] = found.get(name) or getattr(default, name)
    return ProviderSettings(**found)


def _with_built_in(configured: tuple[ProviderSettings, ...]) -> tuple[ProviderSettings, ...]:
    taken = {provider.name for provider in configured}
    return configured + tuple(provider for provider in BUILT_IN if provider.name not in taken)


def _same_file(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:
        return False


# --- lines ----------------------------------------------------------------------------------------


def _key_lines(text: str) -> dict[Key, int]:
    """The line of each key and table, for messages.

    Keys within inline tables are not found; they are reported with the line of the table.
    """
    from awl.toml import statements  # most have nothing to say

    lines: dict[Key, int] = {}
    number, at = 1, 0
    for found in statements(text):
        number, at = number + text.count("\n", at, found.start), found.start
        for length in range(1, len(found.key) + 1):
            lines.setdefault(found.key[:length], number)
    return lines


def _toml_fault(message: str, text: str) -> tuple[int, str]:
    """The line, and the words without it, of what tomllib says."""
    if found := re.search(r" \(at line (\d+), column \d+\)$", message):
        return int(found[1]), message[: found.start()]
    return len(text.rstrip().split("\n")), message.removesuffix(" (at end of document)")


# --- writing --------------------------------------------------------------------------------------

_COMMENTS: Final[Mapping[str, str]] = {
    "session.enabled": "false: of new conversations only the words are kept, without a log",
    "session.data_dir": "empty: the default place; relative: to the folder of this file",
    "session.encrypt": "not built yet; the files are readable by you alone",
    "session.max_event_log_mb": "condense when a log has grown by this much since it last was",
    "session.condense.condense_provider": "which model summarises; empty: the session's own",
    "session.condense.threshold": "condense beyond this part of what the model takes; at most 1",
    "session.condense.keep_recent": "entries that stay as they are, if there is room for them",
    "session.resume.show_banner": "say what is resumed",
    "session.resume.expand_default_lines": "lines of a tool's output that the history shows",
    "agent.provider": "empty: the first below that needs no key or whose key is set",
    "agent.approval": "ask | auto | deny: before a tool changes something",
    "agent.max_turns": "model calls that one prompt may take",
    "llm.providers.type": "anthropic | openai | local | scripted",
    "llm.providers.api_key_env": "the variable that holds the key, never the key",
    "llm.providers.base_url": "empty: the provider's own; else any compatible server",
    "llm.providers.context_window": "tokens",
    "llm.providers.wire": "openai only: chat | responses",
    "llm.providers.path": "scripted: its file of turns; local: another GGUF file",
    "llm.providers.max_tokens": "of an answer; 0: a default",
    "llm.providers.thinking_budget": "tokens of reasoning (not for the chat wire); 0: none",
}


def default_toml() -> str:
    """The text of a new configuration file: every setting with its default, and what it means."""
    head = "# awl's settings. What is left out has the value shown here.\n\n"
    return head + "\n".join(_tables(Config(), commented=True))


def render(config: Config) -> str:
    """The settings that hold, as TOML. Of keys, it holds only the names of their variables."""
    where = _quote(str(config.path)) if config.path else "no file: these are the defaults"
    return f"# read from {where}\n\n" + "\n".join(_tables(config, commented=False))


def default_settings() -> dict[tuple[str, ...], dict[str, tuple[object, str]]]:
    """For each table but the providers', its settings: by name, the default and the line of it."""
    return {
        tuple(title.split(".")): {
            name: (getattr(struct, name), row)
            for name, row in _rows(title, struct, names, commented=True).items()
        }
        for title, struct, names in _sections(Config())
    }


def default_providers() -> list[str]:
    """The tables of the providers that are there without a configuration."""
    return [*_provider_tables(Config(), commented=True)]


def _tables(config: Config, *, commented: bool) -> Iterator[str]:
    for title, struct, names in _sections(config):
        yield _table(f"[{title}]", _rows(title, struct, names, commented=commented))
    yield from _provider_tables(config, commented=commented)


def _sections(config: Config) -> Iterator[tuple[str, msgspec.Struct, tuple[str, ...]]]:
    """The tables but the providers': title, values, and the names of those that are no tables."""
    session = config.session
    sections: tuple[tuple[str, msgspec.Struct, int], ...] = (
        ("session", session, 2),
        ("session.condense", session.condense, 0),
        ("session.resume", session.resume, 0),
        ("agent", config.agent, 0),
    )
    for title, struct, tables in sections:
        yield title, struct, struct.__struct_fields__[: len(struct.__struct_fields__) - tables]


def _provider_tables(config: Config, *, commented: bool) -> Iterator[str]:
    for number, provider in enumerate(config.providers):
        # Of a provider, what differs from the plain case says all; the first also shows the rest.
        first = commented and number == 0
        plain = ProviderSettings(name="", type="")
        names = tuple(
            name
            for name in provider.__struct_fields__
            if getattr(provider, name) != getattr(plain, name) or first
        )
        rows = _rows("llm.providers", provider, names, commented=first)
        yield _table("[[llm.providers]]", rows)


def _table(header: str, rows: Mapping[str, str]) -> str:
    return "\n".join((header, *rows.values())) + "\n"


def _rows(
    title: str, struct: msgspec.Struct, names: tuple[str, ...], *, commented: bool
) -> dict[str, str]:
    rows = {}
    for name in names:
        row = f"{name} = {_show(getattr(struct, name))}"
        comment = _COMMENTS.get(f"{title}.{name}")
        rows[name] = f"{row:<40}  # {comment}" if commented and comment else row
    return rows


def _show(value: object) -> str:
    """A value as TOML writes it, as far as a message needs."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return str(value)


def _quote(text: str) -> str:
    """A TOML basic string, with every control character escaped."""
    quoted = msgspec.json.encode(text.encode(errors="replace").decode()).decode()
    return re.sub("[\x7f-\x9f\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _name(key: Key) -> str:
    """A key as TOML writes it: `session.condense.threshold`, `llm.providers[0].type`."""
    name = ""
    for part in key:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            bare = re.fullmatch("[A-Za-z0-9_-]+", part)
            name += ("." if name else "") + (part if bare else _quote(part))
    return name
