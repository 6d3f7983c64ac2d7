"""`awl config`: where the settings are, and what they are."""

from __future__ import annotations

import os

import click

from awl.cli.common import InOrder, load_config, print_text, say
from awl.errors import AwlError


@click.group(cls=InOrder)
def config() -> None:
    """Where the settings are, and what they are.

    \b
    Examples:
      awl config init                 write a file with every setting
      awl config show                 what holds now
      awl config migrate --dry-run    what this file lacks
    """


@config.command("path")
def config_path() -> None:
    """Print where the configuration file is, or would be.

    \b
    Examples:
      $EDITOR "$(awl config path)"
    """
    from awl.config import config_path as find

    print_text(str(find(os.environ)))


@config.command("show")
def config_show() -> None:
    """Print the settings in force. Keys are never printed, only the names of their variables.

    \b
    Examples:
      awl config show
    """
    from awl.config import render

    print_text(render(load_config(None)).rstrip("\n"))


@config.command("init")
@click.option("--force", is_flag=True, help="Replace a file that is there; it is kept as .bak.")
def config_init(force: bool) -> None:
    """Write a configuration file with every setting and its default.

    \b
    Examples:
      awl config init
      awl config init --force         start anew; the old file is kept as .bak
    """
    from awl.config import config_path as find
    from awl.config import default_toml
    from awl.log.durable import create_private, make_directories, write_all

    path = find(os.environ)
    if path.exists():
        if not force:
            raise AwlError(f"{path} is there already: --force replaces it and keeps it as .bak")
        names = ("", *(f"-{n}" for n in range(2, 1000)))
        kept = (path.with_name(f"{path.name}.bak{name}") for name in names)
        path.rename(next(name for name in kept if not name.exists()))
    make_directories(path.parent)
    out = create_private(path)
    try:
        write_all(out, default_toml().encode())
    finally:
        os.close(out)
    print_text(str(path))


@config.command("migrate")
@click.option("--dry-run", is_flag=True, help="Show what would be added, and change nothing.")
def config_migrate(dry_run: bool) -> None:
    """Add the settings that the configuration file lacks, with their defaults.

    Nothing else of it changes: comments, order and spelling stay as they are. The file as it was
    is kept beside it as .bak, and what was added is shown as a diff. Nothing that awl does changes
    with it.

    \b
    Examples:
      awl config migrate --dry-run
      awl config migrate
    """
    migrate(dry_run)


def migrate(dry_run: bool = False) -> None:
    """Migrate the configuration file, and say what was done."""
    from awl.config import config_path as find
    from awl.migrate import migrate as migrated

    done = migrated(find(os.environ), dry_run=dry_run)
    for line in done.diff():
        print_text(line)
    if not done.added:
        say(f"{done.path} lacks nothing")
        return
    count = f"{len(done.added)} setting{'' if len(done.added) == 1 else 's'}"
    if done.backup is None:
        say(f"{done.path} lacks {count}; nothing was written")
    else:
        say(f"{count} added to {done.path}; the file as it was is {done.backup}")
