"""The command line. What is slow to import is imported by the command that needs it."""

from awl.cli.main import cli, run

__all__ = ["cli", "run"]
