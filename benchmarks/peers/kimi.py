"""Kimi CLI, of which only the command is measured."""

NEEDS = ("kimi-cli",)
