"""Large payloads beside a log: files named by their SHA-256, durable before a line names them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path
from typing import Final

from awl.conversation import BlobRef
from awl.errors import AwlError
from awl.log.durable import create_private, make_directories, sync_directory, write_all

_NAME: Final = re.compile(r"[0-9a-f]{64}")


def is_blob_name(text: str) -> bool:
    """Whether a text can be a blob's name."""
    return _NAME.fullmatch(text) is not None


class BlobDamaged(AwlError):
    """A blob is missing, or its bytes are not the ones that were stored."""


class Blobs:
    """The blobs of one log, in `<name>.blobs/`. The directory appears with the first blob."""

    def __init__(self, log: Path) -> None:
        self.directory = log.with_name(log.name.removesuffix(".jsonl") + ".blobs")

    def put(self, data: bytes) -> BlobRef:
        """Store bytes; durable on return.

        Raises:
            OSError: they could not be written; nothing of them is left under their name.
        """
        name = hashlib.sha256(data).hexdigest()
        ref = BlobRef(blob=name, size=len(data))
        make_directories(self.directory)
        if not self._is_sound(ref):
            self._write(name, data)
        # Also when the names were there: another process may have died before it synced them.
        sync_directory(self.directory)
        sync_directory(self.directory.parent)
        return ref

    def get(self, ref: BlobRef) -> bytes:
        """The bytes of a blob.

        Raises:
            BlobDamaged: it is missing or was changed, or the reference is none.
        """
        if not is_blob_name(ref.blob):
            raise BlobDamaged(f"{ref.blob!r} is no blob's name")
        try:
            data = (self.directory / ref.blob).read_bytes()
        except OSError as error:
            raise BlobDamaged(f"blob {ref.blob[:12]} cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != ref.blob:
            raise BlobDamaged(f"blob {ref.blob[:12]} is not what was stored")
        return data

    def names(self) -> frozenset[str]:
        """The blobs that there are, whatever their bytes."""
        try:
            with os.scandir(self.directory) as found:
                return frozenset(item.name for item in found if is_blob_name(item.name))
        except FileNotFoundError:
            return frozenset()

    def _is_sound(self, ref: BlobRef) -> bool:
        try:
            self.get(ref)
        except BlobDamaged:
            return False
        return True

    def _write(self, name: str, data: bytes) -> None:
        temporary = self.directory / f".{name}.{os.urandom(4).hex()}"
        fd = create_private(temporary)
        try:
            write_all(fd, data)
            os.fsync(fd)
            temporary.replace(self.directory / name)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        finally:
            os.close(fd)


class MemoryBlobs(Blobs):
    """The blobs of a conversation that is not kept: nothing of it reaches a disk."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def put(self, data: bytes) -> BlobRef:
        name = hashlib.sha256(data).hexdigest()
        self._held[name] = data
        return BlobRef(blob=name, size=len(data))

    def get(self, ref: BlobRef) -> bytes:
        if ref.blob not in self._held:
            raise BlobDamaged(f"there is no blob {ref.blob[:12]!r}")
        return self._held[ref.blob]
