"""What looks like a secret is found, and what does not is left alone."""

from __future__ import annotations

import pytest

from awl.secrets import MASK, secret_pattern

KEY = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0"


@pytest.mark.parametrize(
    "secret",
    [
        f"sk-ant-api03-{KEY}",
        f"sk-proj-{KEY}",
        f"sk-{KEY}",
        "AKIAIOSFODNN7EXAMPLE",
        f"ghp_{KEY}",
        f"github_pat_{KEY}",
        f"glpat-{KEY[:20]}",
        f"xoxb-{KEY}",
        f"AIza{KEY[:35]}",
        f"sk_live_{KEY}",
        f"hf_{KEY[:34]}",
        f"npm_{KEY[:36]}",
        f"eyJ{KEY}.eyJ{KEY}.{KEY}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}\n{KEY}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_key_of_a_known_shape_is_masked_whole_wherever_it_stands(secret: str) -> None:
    pattern = secret_pattern({})
    for before, behind in (("", ""), ("key=", "\n"), ('{"key": "', '"}'), ("明天", "。")):
        assert pattern.sub(MASK, before + secret + behind) == before + MASK + behind


def test_addresses_and_headers_lose_their_secret_alone() -> None:
    pattern = secret_pattern({})
    assert pattern.sub(MASK, "postgres://me:hunter22@db/x") == f"postgres://{MASK}@db/x"
    assert pattern.sub(MASK, f"Authorization: Bearer {KEY}") == f"Authorization: Bearer {MASK}"


def test_values_of_secret_looking_variables_are_masked_and_others_are_not() -> None:
    environ = {
        "MY_API_KEY": "correct horse",
        "DB_PASSWORD": "p.a*s+s(w)ord",
        "HOME": "/home/somebody",
        "TOKEN": "short",
        "KEYBOARD": "qwertyuiop",
        "MONKEY": "bananabanana",
    }
    pattern = secret_pattern(environ)
    assert pattern.sub(MASK, "correct horse p.a*s+s(w)ord") == f"{MASK} {MASK}"
    for word in ("/home/somebody", "short", "qwertyuiop", "bananabanana", "pXaasss(w)ord"):
        assert pattern.sub(MASK, word) == word


def test_of_two_values_the_longer_is_masked_whole() -> None:
    pattern = secret_pattern({"A_KEY": "abcdefgh", "B_KEY": "abcdefghijkl"})
    assert pattern.sub(MASK, "abcdefghijkl") == MASK


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn and sk-image are packages",
        "the task-oriented-approach-to-writing-of-programs",
        "sk-learn-contrib-and-other-packages",
        "task-0123456789-abcdefghij-0123456789",
        "https://example.com:8080/path@v1",
        "bearer of good news",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "019dc5ba-53f6-71a5-ab8f-b1f8709c2572",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert secret_pattern({}).sub(MASK, text) == text
