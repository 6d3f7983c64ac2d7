"""What the wires have in common: tool input, pictures, and whether a library is there."""

from __future__ import annotations

import base64
import importlib.util
from typing import Any, Final

import msgspec

from awl.conversation import Image, parse_input
from awl.errors import AwlError, MissingExtra
from awl.providers import Request

NO_PICTURE: Final = "[picture not available]"
_KINDS: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""What every server takes for a picture. Logs of other programs have others, too."""


def require(module: str, what: str) -> None:
    """Raise `MissingExtra` unless `module` can be imported. It is not imported here."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(what, f"pip install {module}")


def tool_input(text: str) -> dict[str, Any]:
    """A tool call's input as the object that wires want; what is none is held in one."""
    value = parse_input(text) if text.strip() else None
    return {"raw": text} if value is None else value


def tool_arguments(text: str) -> str:
    """A tool call's input as the text of an object: the model's own, if it is one."""
    value = tool_input(text)
    return msgspec.json.encode(value).decode() if value == {"raw": text} else text


def intact(text: str) -> bool:
    """Whether the log keeps this text as it is. It replaces lone surrogates, and what was signed
    with them would not be taken back without them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def picture(image: Image, request: Request) -> str | None:
    """A picture's bytes in base64, or None if they cannot be had or sent."""
    if request.read_blob is None or image.mime_type not in _KINDS:
        return None
    try:
        return base64.b64encode(request.read_blob(image.blob)).decode("ascii")
    except (OSError, AwlError):
        return None  # A lost picture must not make the whole conversation unusable.


def data_url(image: Image, request: Request) -> str | None:
    """A picture as a data URL, or None if its bytes cannot be had."""
    data = picture(image, request)
    return None if data is None else f"data:{image.mime_type};base64,{data}"
