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
        f"sk-or-v1-{'0123456789abcdef' * 4}",
        f"gsk_{KEY}{KEY[:12]}",
        f"xai-{KEY}{KEY}",
        f"pplx-{KEY}",
        f"r8_{KEY[:37]}",
        f"fw_{KEY[:24]}",
        f"csk-{KEY}",
        f"nvapi-{KEY[:20]}-{KEY}_x",
        f"tgp_v1_{KEY[:30]}-_x",
        f"tvly-dev-{KEY}",
        "lsv2_pt_0123456789abcdef0123456789abcdef_0123456789",
        f"AQ.Ab8RN6{KEY[:20]}-{KEY}_",
        f"ABSK{KEY}{KEY}+/==",
        f"GOCSPX-{KEY[:28]}",
        "dapi0123456789abcdef0123456789abcdef",
        f"123456789:AA{KEY[:33]}",
        f"hvs.CAES{KEY}",
        f"ntn_{KEY}",
        "PMAK-0123456789abcdef01234567-0123456789abcdef0123456789abcdef01",
        "sk_0123456789abcdef0123456789abcdef0123456789abcdef",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{KEY}\n-----END PGP PRIVATE KEY BLOCK-----",
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
    assert pattern.sub(MASK, f"MISTRAL_API_KEY={KEY[:32]} x") == f"MISTRAL_API_KEY={MASK} x"
    assert pattern.sub(MASK, f"x-api-key: {KEY[:32]}\n") == f"x-api-key: {MASK}\n"
    assert pattern.sub(MASK, f"Authorization: Bearer {KEY}") == f"Authorization: Bearer {MASK}"


def test_values_of_secret_looking_variables_are_masked_and_others_are_not() -> None:
    environ = {
        "MY_API_KEY": "correct horse",
        "DB_PASSWORD": "p.a*s+s(w)ord",
        "PGPASSWORD": "water and wine",
        "MYSQL_PWD": "bread and salt",
        "SMTP_PASS": "oil and vinegar",
        "GITHUB_AUTHTOKEN": "milk and honey",
        "PWD": "/home/somebody/here",
        "HOME": "/home/somebody",
        "TOKEN": "short",
        "KEYBOARD": "qwertyuiop",
        "MONKEY": "bananabanana",
    }
    pattern = secret_pattern(environ)
    assert pattern.sub(MASK, "correct horse p.a*s+s(w)ord") == f"{MASK} {MASK}"
    for said in ("water and wine", "bread and salt", "oil and vinegar", "milk and honey"):
        assert pattern.sub(MASK, said) == MASK
    for word in (
        "/home/somebody/here",
        "/home/somebody",
        "short",
        "qwertyuiop",
        "bananabanana",
        "pXaasss(w)ord",
    ):
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
        "fw_version_2_of_the_interface_is_here",
        "the glc_handles of windows",
        "jina_embeddings_are_made_of_many_words",
        "api_key=os.environ['MISTRAL_API_KEY']",
        "a csk-like and an xai-like name with-many-words-joined-by-hyphens",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "019dc5ba-53f6-71a5-ab8f-b1f8709c2572",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert secret_pattern({}).sub(MASK, text) == text
