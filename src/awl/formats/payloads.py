"""Images that another program holds in its own way. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from awl.conversation import Image
from awl.formats.format import Keep

UNKNOWN: Final = "application/octet-stream"

_MAGIC: Final = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def mime_type_of(data: bytes) -> str:
    """The type of an image, by its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if data.startswith(magic)), UNKNOWN)


def from_base64(text: str, mime_type: str, keep: Keep) -> Image | None:
    """An image from its base64 text; None where that is none, but a document or a sound."""
    if mime_type and not mime_type.startswith("image/"):
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return Image(mime_type=mime_type or mime_type_of(data), blob=keep(data)) if data else None


def from_data_url(url: str, keep: Keep) -> Image | None:
    """An image from a `data:` URL (RFC 2397) in base64; None where it is none."""
    head, comma, text = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return from_base64(text, head[5:-7].partition(";")[0], keep)


def to_data_url(mime_type: str, data: bytes) -> str:
    """The `data:` URL of an image."""
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"
