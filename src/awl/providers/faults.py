"""What went wrong at a provider, in one place for all wires: any exception -> `ProviderError`.

Servers say the same thing in many ways, and compatible servers invent more. What they name (a type
or a code) counts first, then known sentences about the context's length, then the HTTP status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from awl.errors import ProviderError, ProviderFault

NAMED: Final[Mapping[str, ProviderFault]] = {
    # Anthropic: error.type
    "authentication_error": "auth",
    "permission_error": "auth",
    "not_found_error": "model",
    "request_too_large": "context_length",
    "rate_limit_error": "rate_limit",
    "overloaded_error": "overloaded",
    "api_error": "overloaded",
    "timeout_error": "connection",
    # OpenAI: error.code, or error.type
    "invalid_api_key": "auth",
    "model_not_found": "model",
    "context_length_exceeded": "context_length",
    "string_above_max_length": "context_length",
    "rate_limit_exceeded": "rate_limit",
    "insufficient_quota": "refused",  # a 429 that waiting does not mend
    "server_error": "overloaded",
    "server_is_overloaded": "overloaded",
    # llama.cpp
    "exceed_context_size_error": "context_length",
    "unavailable_error": "overloaded",
}
"""Names that servers give to what went wrong."""

TOO_LONG: Final = re.compile(
    r"prompt is too long"
    r"|exceed(s|ed)? (the )?(context|model's context|available context|maximum context)"
    r"|maximum context length"
    r"|context length exceeded"
    r"|exceeds? the context window"
    r"|input is too long"
    r"|request too large for",
    re.IGNORECASE,
)
"""Sentences by which servers refuse a request for its length."""

PICTURE: Final = re.compile(r"\bimages?\b|\bimage_url\b|\bmultimodal\b", re.IGNORECASE)
"""Sentences by which servers refuse a picture: too large, not valid, or of no use to the model."""

TOO_LONG_ADVICE: Final = (
    "everything is kept; go on with a model that takes more (--model, /model), or begin a new"
    " session"
)

ADVICE: Final[Mapping[ProviderFault, tuple[str, str]]] = {
    "auth": ("refused the API key", "check {key}"),
    "context_length": ("was sent more than the model can take", TOO_LONG_ADVICE),
    "rate_limit": ("limits the rate of requests", "wait a moment, then try again"),
    "overloaded": ("cannot answer now", "wait a moment, then try again"),
    "connection": ("could not be reached, or broke off", "check the network and {endpoint}"),
    "picture": ("refused a picture", "take a smaller one, or a model that sees"),
    "refused": ("refused the request", "what it says should tell why"),
    "model": ("does not know the model", "check the name {model!r} and {endpoint}"),
    "internal": ("answered in a way that awl does not understand", "check {endpoint}"),
}
"""What happened, and what to do about it."""

DETAIL_LIMIT: Final = 300


def provider_error(
    error: Exception, *, provider: str, model: str, endpoint: str, key: str
) -> ProviderError:
    """`error`, met while `provider` was asked, as the error that a caller meets.

    `key` names the variable that holds the API key; `endpoint` is where requests go.
    """
    if isinstance(error, ProviderError):
        return error
    facts = _facts(error)
    status = _status(error)
    fault = fault_of(status, facts)
    if fault is None:
        fault = "connection" if _broke_off(error) else "internal"
    happened, advice = ADVICE[fault]
    detail = one_line(facts.get("message") or _reason(error))
    number = f" ({status})" if status is not None and status >= 400 else ""
    advice = advice.format(key=key, endpoint=endpoint, model=model)
    said = f": {detail}" if detail else ""
    return ProviderError(
        f"{one_line(provider)} {happened}{number}{said}; {advice}", fault=fault, status=status
    )


def fault_of(status: int | None, facts: Mapping[str, str]) -> ProviderFault | None:
    """The kind of an error that a server told of, or None if it told of none."""
    message = facts.get("message", "")
    if status in (None, 200, 400, 413, 422, 429) and TOO_LONG.search(message):
        return "context_length"
    if status in (400, 413, 415, 422, 500) and PICTURE.search(message):
        return "picture"
    for name in (facts.get("code"), facts.get("type")):
        # "api_error" is what proxies call everything, refusals too: there the status knows more.
        vague = name == "api_error" and status is not None and 400 <= status < 500
        if name is not None and name in NAMED and not vague:
            return NAMED[name]
    match status:
        case None | 200:  # told in the stream of an answer
            return "refused" if facts.get("type") or facts.get("code") else None
        case 401 | 403:
            return "auth"
        case 404:
            return "model"
        case 408:
            return "connection"
        case 409:
            return "overloaded"
        case 413:
            return "context_length"
        case 429:
            return "rate_limit"
    if status >= 500:
        return "overloaded"
    return "refused" if status >= 400 else None


def one_line(text: str) -> str:
    """`text` without control characters and line breaks, at most `DETAIL_LIMIT` characters."""
    visible = "".join(char if char.isprintable() else " " for char in text[: DETAIL_LIMIT * 4])
    line = " ".join(visible.split()).rstrip(" .;:")
    return line if len(line) <= DETAIL_LIMIT else line[: DETAIL_LIMIT - 1] + "…"


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _facts(error: Exception) -> dict[str, str]:
    """The type, code and message that a server gave, wherever its wire puts them."""
    body: Any = getattr(error, "body", None)
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
        body = body["error"]
    if isinstance(body, str):
        # A page of HTML from a proxy says nothing that its status does not.
        return {} if body.lstrip().startswith("<") else {"message": body}
    if not isinstance(body, Mapping):
        return {}
    found = {name: body.get(name) for name in ("type", "code", "message")}
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _broke_off(error: Exception) -> bool:
    """Whether this is a connection that failed, or a stream that was cut in an event's middle."""
    names = {kind.__name__ for kind in type(error).__mro__}
    libraries = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return (
        isinstance(error, (OSError, EOFError, json.JSONDecodeError, UnicodeDecodeError))
        or bool(names & {"APIConnectionError", "APITimeoutError"})
        or bool(libraries & {"httpx", "httpx2", "httpcore", "httpcore2", "h11"})
    )


def _reason(error: Exception) -> str:
    """The innermost sentence that says something: SDKs wrap causes in "Connection error."."""
    reason = str(error)
    cause: BaseException | None = error
    while cause is not None:
        reason = str(cause) or reason
        cause = cause.__cause__
    return reason
