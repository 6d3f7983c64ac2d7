"""awl: an AI agent whose conversations cannot be lost."""

__version__ = "0.1.0"
