"""Reading files that were compressed with Zstandard, with whatever can do it here."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any, Final

from awl.errors import AwlError

_MODULES: Final = ("compression.zstd", "backports.zstd")  # of Python 3.14, and for those before it
_PIECE: Final = 1 << 13  # bytes that are unpacked at once, and lost where damage begins in them


class NoZstandard(AwlError):
    """A file is compressed and nothing here can read that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path} is compressed: install backports.zstd, or unpack it with `zstd -d` and import"
            " the result"
        )


def open_zst(path: Path) -> io.BufferedReader:
    """Open a compressed file; it reads as what it holds.

    Raises:
        NoZstandard: nothing here can read it.
        OSError: it cannot be opened.
    """
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return io.BufferedReader(_Unpacked(module.open(path, "rb"), module.ZstdError))
    raise NoZstandard(path)


class _Unpacked(io.RawIOBase):
    """What a compressed file holds; damage is an `OSError`, as in any other file."""

    def __init__(self, file: Any, error: type[Exception]) -> None:
        self._file = file
        self._error = error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._file.readinto1(memoryview(buffer)[:_PIECE]))
        except (EOFError, self._error) as error:
            raise OSError(f"it cannot be unpacked: {error}") from None

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte of what the file holds. Going back unpacks it from its beginning."""
        try:
            return int(self._file.seek(offset, whence))
        except (EOFError, self._error) as error:
            raise OSError(f"it cannot be unpacked: {error}") from None

    def close(self) -> None:
        self._file.close()
        super().close()
