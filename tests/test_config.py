from __future__ import annotations

import os
from pathlib import Path

import pytest

from awl import config as config_module
from awl.config import (
    BUILT_IN,
    AgentSettings,
    Config,
    ProviderSettings,
    SessionSettings,
    choose_provider,
    config_path,
    default_toml,
    load,
    render,
    sessions_dir,
)
from awl.errors import ConfigError


class Place:
    """A home with a configuration file, and a project."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.cwd = root / "project"
        self.cwd.mkdir()
        self.file = self.home / ".config" / "awl" / "config.toml"
        self.project_file = self.cwd / ".awl" / "config.toml"
        self.environ = {"HOME": str(self.home)}

    def write(self, text: str | bytes, path: Path | None = None) -> Path:
        path = path or self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def load(self, text: str | bytes | None = None, project: str | bytes | None = None) -> Config:
        if text is not None:
            self.write(text)
        if project is not None:
            self.write(project, self.project_file)
        return load(self.environ, self.cwd)

    def error(self, text: str | bytes | None, project: str | bytes | None = None) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load(text, project)
        assert "\n" not in str(caught.value)
        return caught.value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- where things are -----------------------------------------------------------------------------


def test_the_config_is_where_the_environment_says() -> None:
    home = {"HOME": "/h"}
    assert config_path(home) == Path("/h/.config/awl/config.toml")
    assert config_path({**home, "XDG_CONFIG_HOME": "/x"}) == Path("/x/awl/config.toml")
    assert config_path({**home, "XDG_CONFIG_HOME": ""}) == Path("/h/.config/awl/config.toml")
    assert config_path({**home, "XDG_CONFIG_HOME": "rel"}) == Path("/h/.config/awl/config.toml")
    assert config_path({**home, "AWL_CONFIG": "/c.toml"}) == Path("/c.toml")
    assert config_path({**home, "AWL_CONFIG": "~/c.toml"}) == Path("/h/c.toml")
    assert config_path({**home, "AWL_CONFIG": "c.toml"}) == Path("c.toml").absolute()
    assert config_path({**home, "AWL_CONFIG": ""}) == Path("/h/.config/awl/config.toml")


def test_sessions_are_where_the_environment_or_the_config_says() -> None:
    home = {"HOME": "/h"}
    plain = Config()
    default = Path("/h/.local/share/awl/sessions")
    assert sessions_dir(plain, home) == default
    assert sessions_dir(plain, {**home, "XDG_DATA_HOME": "/d"}) == Path("/d/awl/sessions")
    assert sessions_dir(plain, {**home, "XDG_DATA_HOME": "d"}) == default
    assert sessions_dir(plain, {**home, "XDG_DATA_HOME": ""}) == default

    def with_dir(data_dir: str) -> Config:
        return Config(session=SessionSettings(data_dir=data_dir), path=Path("/etc/awl/config.toml"))

    assert sessions_dir(with_dir("logs"), home) == Path("/etc/awl/logs")
    assert sessions_dir(with_dir("~/logs"), home) == Path("/h/logs")
    assert sessions_dir(with_dir("/logs"), {**home, "XDG_DATA_HOME": "/d"}) == Path("/logs")
    env = {**home, "AWL_SESSION_DIR": "~/mine"}
    assert sessions_dir(with_dir("/logs"), env) == Path("/h/mine")
    assert sessions_dir(with_dir("/logs"), {**home, "AWL_SESSION_DIR": ""}) == Path("/logs")


# --- what is read ---------------------------------------------------------------------------------


def test_without_a_file_everything_is_default(place: Place) -> None:
    assert place.load() == Config()
    assert place.load().providers == BUILT_IN


def test_an_empty_file_is_the_default_and_is_named(place: Place) -> None:
    assert place.load("") == Config(path=place.file)


def test_a_named_file_that_is_missing_is_said(place: Place) -> None:
    place.environ["AWL_CONFIG"] = "/nowhere/c.toml"
    config = place.load()
    assert config.path is None
    assert len(config.warnings) == 1 and "/nowhere/c.toml" in config.warnings[0]


def test_values_are_read(place: Place) -> None:
    config = place.load(
        """
        [session]
        enabled = false
        data_dir = "logs"
        max_event_log_mb = 1
        [session.condense]
        condense_provider = "mine"
        threshold = 1
        keep_recent = 0
        [session.resume]
        show_banner = false
        [agent]
        provider = "mine"
        approval = "deny"
        max_turns = 1
        [[llm.providers]]
        name = "mine"
        type = "openai"
        model = "m"
        base_url = "http://127.0.0.1:8080/v1"
        wire = "responses"
        context_window = 1000
        """
    )
    assert config.warnings == ()
    assert not config.session.enabled and config.session.max_event_log_mb == 1
    assert config.session.condense.threshold == 1.0
    assert isinstance(config.session.condense.threshold, float)
    assert config.session.condense.keep_recent == 0
    assert not config.session.resume.show_banner
    assert config.session.resume.expand_default_lines == 20
    assert config.agent == AgentSettings(provider="mine", approval="deny", max_turns=1)
    mine = config.providers[0]
    assert mine.endpoint == "http://127.0.0.1:8080/v1" and mine.wire == "responses"
    assert config.providers[1:] == BUILT_IN
    assert sessions_dir(config, place.environ) == place.file.parent / "logs"


def test_a_byte_order_mark_and_crlf_are_tolerated(place: Place) -> None:
    text = b"\xef\xbb\xbf[agent]\r\nmax_turns = 3\r\nodd = 1\r\n"
    config = place.load(text)
    assert config.agent.max_turns == 3
    assert f"{place.file}:3:" in config.warnings[0]


# --- unknown keys ---------------------------------------------------------------------------------


def test_unknown_keys_warn_with_their_line(place: Place) -> None:
    config = place.load(
        '[agnet]\nmax_turns = 3\n[session]\n"enab\\u006ced" = true\nenabeld = false\n'
        "# odd = 1\nresume.banner = 1\n[[llm.providers]]\ntype = 'local'\n"
        "[[llm.providers]]\nname = 'b'\ntype = 'local'\n'a key' = '''\nodd = 5\n'''\nlast = 1\n"
        "[llm]\nzeta = 1\n"
    )
    assert [warning.removeprefix(str(place.file)) for warning in config.warnings] == [
        ":1: agnet is not a setting and is ignored; did you mean agent?",
        ":5: session.enabeld is not a setting and is ignored; did you mean enabled?",
        ":7: session.resume.banner is not a setting and is ignored; did you mean show_banner?",
        ":18: llm.zeta is not a setting and is ignored",
        ':13: llm.providers[1]."a key" is not a setting and is ignored',
        ":16: llm.providers[1].last is not a setting and is ignored",
    ]
    assert config.agent == AgentSettings()


def test_an_unknown_key_in_an_inline_table_has_the_line_of_the_table(place: Place) -> None:
    config = place.load("[session]\n\ncondense = { thresold = 0.5 }\n")
    assert config.warnings[0].startswith(f"{place.file}:3: session.condense.thresold ")


def test_serve_is_known_and_not_built(place: Place) -> None:
    config = place.load('\n[serve]\nhttp_addr = "127.0.0.1:8420"\n')
    assert len(config.warnings) == 1
    assert ":2: serve is ignored" in config.warnings[0]


def test_warnings_hold_no_control_characters_and_are_limited(place: Place) -> None:
    keys = "".join(f'"\\u001b[2J{number}" = 1\n' for number in range(1000))
    config = place.load(project=keys)
    assert len(config.warnings) == config_module.MAX_WARNINGS + 1
    assert "980 more" in config.warnings[-1]
    assert all(warning.isprintable() for warning in config.warnings)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("session = 1", "session", "1: it must be a table"),
        ("[session]\nenabled = 1", "session.enabled", "1: it must be true or false"),
        ("[session]\ndata_dir = true", "session.data_dir", "true: it must be text in quotes"),
        ("[session]\nmax_event_log_mb = 0", "session.max_event_log_mb", "whole number from 1"),
        ("[session]\nmax_event_log_mb = true", "session.max_event_log_mb", "whole number"),
        ("[session]\nmax_event_log_mb = 1.5", "session.max_event_log_mb", "1.5: it must be a wh"),
        ("[session]\nencrypt = true", "session.encrypt", "not built yet"),
        ("[session]\ncondense = []", "session.condense", "a list: it must be a table"),
        ("[session.condense]\nthreshold = 0", "session.condense.threshold", "above 0"),
        ("[session.condense]\nthreshold = 1.01", "session.condense.threshold", "1.01"),
        ("[session.condense]\nthreshold = nan", "session.condense.threshold", "nan"),
        ("[session.condense]\nthreshold = true", "session.condense.threshold", "a number"),
        ('[session.condense]\nthreshold = "1"', "session.condense.threshold", '"1"'),
        ("[session.condense]\nkeep_recent = -1", "session.condense.keep_recent", "from 0 on"),
        (
            '[session.condense]\ncondense_provider = "x"',
            "session.condense.condense_provider",
            "anthropic, openai or local",
        ),
        (
            "[session.resume]\nexpand_default_lines = 2026-01-01",
            "session.resume.expand_default_lines",
            "2026-01-01: it must be a whole number",
        ),
        ("[agent]\nmax_turns = 0", "agent.max_turns", "from 1 on"),
        ('[agent]\napproval = "yes"', "agent.approval", '"yes": it must be ask, auto or deny'),
        ('[agent]\nprovider = "x"', "agent.provider", "anthropic, openai or local"),
        ("llm.providers = 1", "llm.providers", "[[llm.providers]]"),
        ("[llm.providers]\nname = 'a'", "llm.providers", "[[llm.providers]]"),
        ("[[llm.providers]]\nname = 'a'", "llm.providers[0]", "has no type"),
        ("[[llm.providers]]\ntype = 'x'", "llm.providers[0].type", "openai, local or scripted"),
        ("[[llm.providers]]\ntype = 'scripted'", "llm.providers[0]", "has no path"),
        (
            "[[llm.providers]]\nname = 'a b'\ntype = 'local'",
            "llm.providers[0].name",
            "without spaces",
        ),
        ("[[llm.providers]]\nname = ''\ntype = 'local'", "llm.providers[0].name", "word"),
        (
            "[[llm.providers]]\ntype = 'openai'\nwire = 'x'",
            "llm.providers[0].wire",
            "chat or responses",
        ),
        (
            "[[llm.providers]]\ntype = 'openai'\nbase_url = 'ftp://x'",
            "llm.providers[0].base_url",
            "http://",
        ),
        (
            "[[llm.providers]]\ntype = 'openai'\nbase_url = 'http://[x'",
            "llm.providers[0].base_url",
            "http://",
        ),
        (
            "[[llm.providers]]\ntype = 'openai'\nbase_url = 'http://x'",
            "llm.providers[0]",
            "no model",
        ),
        (
            "[[llm.providers]]\ntype = 'local'\n[[llm.providers]]\nname = 'local'\ntype='local'",
            "llm.providers[1].name",
            "names must differ",
        ),
        ("serve = 1", "serve", "must be a table"),
    ],
)
def test_a_wrong_value_names_file_line_key_and_what_is_allowed(
    place: Place, text: str, key: str, words: str
) -> None:
    error = place.error("# first\n" + text)
    assert error.path == place.file and error.key == key
    place_, _, rest = str(error).partition(": ")
    path, _, line = place_.rpartition(":")
    assert path == str(place.file) and 2 <= int(line) <= 2 + text.count("\n")
    assert rest.startswith(key) and words in rest


@pytest.mark.parametrize("line", ["base_url = 'https://me:SECRET@x'", "api_key_env = 'sk-SECRET'"])
def test_a_secret_in_the_wrong_place_is_refused_and_not_repeated(place: Place, line: str) -> None:
    error = place.error(f"[[llm.providers]]\ntype = 'openai'\nmodel = 'm'\n{line}\n")
    assert ":4:" in str(error) and "SECRET" not in str(error)


def test_broken_toml_names_its_line(place: Place) -> None:
    assert str(place.error("[agent]\nmax_turns = \n")).startswith(f"{place.file}:2: not valid TOML")
    assert str(place.error("[agent]\n[agent]\n")).startswith(f"{place.file}:2: not valid TOML")
    assert str(place.error('\nx = "')).startswith(f"{place.file}:2: not valid TOML")
    assert str(place.error("\nx = '''\na\n")).startswith(f"{place.file}:3: not valid TOML")
    assert str(place.error(b"\n# \xff\n")).startswith(f"{place.file}:2: not valid UTF-8")
    assert "nested too deeply" in str(place.error("x = " + "[" * 100_000))
    assert "not valid TOML" in str(place.error("x = " + "9" * 100_000))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_an_error(place: Place) -> None:
    place.write("").chmod(0)
    assert str(place.file) in str(place.error(None))


def test_a_file_that_cannot_be_read_is_an_error(place: Place) -> None:
    place.file.mkdir(parents=True)
    assert str(place.error(None)).startswith(f"{place.file} cannot be read: ")


def test_an_endless_file_is_an_error(place: Place) -> None:
    place.environ["AWL_CONFIG"] = "/dev/zero"
    assert "larger than" in str(place.error(None))


# --- the project's file ---------------------------------------------------------------------------


def test_a_project_sets_condense_and_resume_over_the_users(place: Place) -> None:
    config = place.load(
        "[session.condense]\nthreshold = 0.5\nkeep_recent = 7\n",
        "[session.condense]\nthreshold = 0.6\n[session.resume]\nshow_banner = false\n",
    )
    assert config.session.condense.threshold == 0.6
    assert config.session.condense.keep_recent == 7
    assert not config.session.resume.show_banner
    assert config.warnings == () and config.path == place.file


def test_a_project_sets_nothing_else(place: Place) -> None:
    config = place.load(
        project='[session]\ndata_dir = "/tmp/stolen"\nencrypt = true\n[agent]\napproval = "auto"\n'
        '[[llm.providers]]\nname = "anthropic"\ntype = "openai"\nmodel = "m"\n'
        'base_url = "http://evil.example"\n'
    )
    assert config == Config(warnings=config.warnings)
    assert [warning.removeprefix(str(place.project_file))[:24] for warning in config.warnings] == [
        ":4: agent is ignored: a ",
        ":6: llm is ignored: a pr",
        ":2: session.data_dir is ",
        ":3: session.encrypt is i",
    ]


def test_errors_in_a_project_are_errors(place: Place) -> None:
    error = place.error(None, "[session.condense]\nthreshold = 2\n")
    assert str(error).startswith(f"{place.project_file}:2: session.condense.threshold is 2")
    error = place.error(None, "[session.condense]\ncondense_provider = 'x'\n")
    assert error.path == place.project_file


def test_a_pipe_in_a_project_does_not_hang(place: Place) -> None:
    place.project_file.parent.mkdir()
    os.mkfifo(place.project_file)
    assert "not a regular file" in str(place.error(None))


def test_a_project_whose_awl_is_a_file_has_no_config(place: Place) -> None:
    (place.cwd / ".awl").write_text("")
    assert place.load() == Config()


def test_the_users_file_is_not_also_the_projects(place: Place) -> None:
    place.environ["AWL_CONFIG"] = str(place.project_file)
    config = place.load(project="[agent]\nmax_turns = 9\n")
    assert config.agent.max_turns == 9 and config.warnings == ()


def test_without_a_directory_no_project_is_read(place: Place) -> None:
    place.write("broken", place.project_file)
    assert load(place.environ) == Config()


# --- providers ------------------------------------------------------------------------------------


def test_a_type_implies_model_key_and_window(place: Place) -> None:
    config = place.load("[[llm.providers]]\nname = 'claude'\ntype = 'anthropic'\n")
    claude = config.providers[0]
    assert (claude.model, claude.api_key_env, claude.context_window) == (
        "claude-sonnet-4-20250514",
        "ANTHROPIC_API_KEY",
        200_000,
    )
    assert [provider.name for provider in config.providers] == [
        "claude",
        "anthropic",
        "openai",
        "local",
    ]


def test_the_types_key_is_not_sent_to_another_server(place: Place) -> None:
    config = place.load(
        "[[llm.providers]]\ntype = 'openai'\nmodel = 'm'\nbase_url = 'http://127.0.0.1:1/v1'\n"
    )
    assert config.providers[0].api_key_env == ""
    assert config.providers[0].context_window == 0


def test_paths_are_relative_to_the_configs_folder(place: Place) -> None:
    config = place.load(
        "[[llm.providers]]\ntype = 'scripted'\npath = 'turns.jsonl'\n"
        "[[llm.providers]]\ntype = 'local'\npath = '~/m/big.gguf'\n"
    )
    scripted, local = config.providers[:2]
    assert scripted.path == str(place.file.parent / "turns.jsonl")
    assert local.path == str(place.home / "m" / "big.gguf")
    assert local.model == "big" and local.context_window == 8192


def test_the_named_provider_is_chosen_and_an_unknown_one_lists_the_choices() -> None:
    config = Config(agent=AgentSettings(provider="openai"))
    assert choose_provider(config, {}, "local").name == "local"
    assert choose_provider(config, {"ANTHROPIC_API_KEY": "k"}).name == "openai"
    with pytest.raises(ConfigError, match=r'"x".*anthropic, openai or local'):
        choose_provider(config, {}, "x")


def test_without_a_choice_the_first_usable_provider_is_chosen() -> None:
    plain = Config()
    assert choose_provider(plain, {}).name == "local"
    assert choose_provider(plain, {"OPENAI_API_KEY": "k"}).name == "openai"
    both = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    assert choose_provider(plain, both).name == "anthropic"
    assert choose_provider(plain, {"OPENAI_API_KEY": " "}).name == "local"
    mine = ProviderSettings(name="mine", type="openai", api_key_env="MY_KEY")
    config = Config(providers=(mine, *BUILT_IN))
    assert choose_provider(config, {**both, "MY_KEY": "k"}).name == "mine"
    assert choose_provider(config, both).name == "anthropic"


# --- what is written ------------------------------------------------------------------------------


def test_the_default_file_is_exactly_the_defaults(place: Place) -> None:
    config = place.load(default_toml())
    assert config == Config(path=place.file)
    for struct in (SessionSettings(), SessionSettings().condense, AgentSettings()):
        for name in struct.__struct_fields__:
            assert name in default_toml()


def test_rendered_settings_read_back_as_the_same(place: Place) -> None:
    config = place.load(
        '[session]\ndata_dir = "/a \\"b\\" \\u001b\\u007f\\n ü"\n[agent]\napproval = "auto"\n'
        "[[llm.providers]]\nname = 'mine'\ntype = 'openai'\nmodel = 'm'\napi_key_env = 'MY_KEY'\n"
        "base_url = 'https://x/v1'\nthinking_budget = 5\n",
    )
    text = render(config)
    assert all(line.isprintable() for line in text.split("\n"))
    assert place.load(text) == config


def test_what_is_shown_says_which_file_was_read(place: Place) -> None:
    assert str(place.file) in render(place.load("")).split("\n")[0]
    assert "no file" in render(Config())


def test_a_folder_with_a_nul_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[session]\ndata_dir = "a\\u0000b"\n')
    with pytest.raises(ConfigError, match="data_dir"):
        load({"AWL_CONFIG": str(path), "HOME": "/h"})
