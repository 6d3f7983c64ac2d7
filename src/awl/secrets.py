"""What looks like a secret: keys of well-known shapes, and what the environment calls one.

Used where a session leaves the machine (`--redact`). It is a net, not a proof: a password that
looks like any word is not caught.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MASK: Final = "[redacted]"

SHORTEST: Final = 8
"""Characters that a variable's value must have to be taken for a secret: shorter ones are words."""

_PREFIXES: Final = (
    *("gsk_", "xai-", "pplx-", "r8_", "fw_", "csk-", "vck_", "e2b_", "fc-", "rpa_"),  # models
    *("shpat_", "sbp_", "lin_api_", "ntn_", "rubygems_", "NRAK-", "PMAK-", "doo_v1_", "dor_v1_"),
)
"""Begin keys that go on with letters and digits alone."""

_LONG_PREFIXES: Final = (
    *("nvapi-", "tgp_v1_", "tvly-", "jina_", r"lsv2_(?:pt|sk)_", r"AQ\.Ab", "ABSK"),  # models
    *("GOCSPX-", r"1//0", "xapp-", "dckr_pat_", "figd_", "glsa_", "glc_", r"hvs\.", "sb_secret_"),
    *("sntry[su]_", "pscale_tkn_", "ATATT3", r"dp\.(?:pt|st|ct)\.", "AGE-SECRET-KEY-1"),
)
"""Begin keys in which other characters stand, too."""

_WORDS: Final = (
    rf"(?:{'|'.join(_PREFIXES)})(?=[A-Za-z]{{0,99}}[0-9])[A-Za-z0-9]{{20,}}(?:-[A-Za-z0-9]{{20,}})?",
    rf"(?:{'|'.join(_LONG_PREFIXES)})(?=[A-Za-z_-]{{0,99}}[0-9])[A-Za-z0-9_+/=-]{{20,}}",
    r"dapi[a-f0-9]{32}",  # Databricks
    r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",  # Telegram
    r"(?:SK|sk_|key-)[a-f0-9]{32,48}(?![A-Za-z0-9])",  # Twilio and others
    # OpenAI and those like it; words joined by hyphens have no digit.
    r"sk-(?=[A-Za-z0-9_-]{0,99}[0-9])[A-Za-z0-9_-]{20,}",
)
"""Shapes that could be a part of a word, and are looked for where none goes on."""

_BEHIND: Final = (
    r"(?<=://)[^\s/:@]{1,200}:[^\s/@]{1,200}(?=@)",  # user and password in an address
    # What is called a key where it stands, if it looks like no word.
    r"(?i:(?<=api_key=)|(?<=api_key=['\"])|(?<=api-key: ))"
    r"(?=[A-Za-z_-]{0,99}[0-9])[A-Za-z0-9+/_.=-]{16,}",
    r"(?<=AccountKey=)[A-Za-z0-9+/]{40,}={0,2}",  # Azure
    r"(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9+/_.=-]{16,}",  # Authorization headers
    r"(?i:(?<=aws_secret_access_key=)|(?<=aws_secret_access_key = ))[A-Za-z0-9/+]{40}",
)
"""What is a secret by what stands before it."""

_SHAPES: Final = (
    # One look at what stands before, which is seldom as wanted, for all of these at once.
    rf"(?<![A-Za-z0-9])(?:{'|'.join(_WORDS)})",
    rf"(?<=[ =/'\"])(?:{'|'.join(_BEHIND)})",
    r"sk-ant-[A-Za-z0-9_-]{20,}",  # Anthropic
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}",  # AWS access key ids
    r"gh[pousr]_[A-Za-z0-9]{36,}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{40,}",
    r"gl(?:pat|ptt|dt|rt)-[A-Za-z0-9_-]{20,}",  # GitLab
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"ya29\.[A-Za-z0-9_-]{20,}",
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-[A-Za-z0-9_-]{50,}",
    r"dop_v1_[a-f0-9]{64}",  # DigitalOcean
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # SendGrid
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # JSON web tokens
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]{0,20000}?"
    r"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
)

_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:KEY|TOKEN|SECRET|(?:PG)?PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|APIKEY|PASS"
    r"|(?:API|AUTH|ACCESS|SECRET)(?:KEY|TOKEN))(?:_|$)|_PWD$",
    re.I,
)


def secret_pattern(environ: Mapping[str, str]) -> re.Pattern[str]:
    """A pattern for all that looks like a secret, values of secret-looking variables included."""
    values = {
        value.strip()
        for name, value in environ.items()
        if _SECRET_NAME.search(name) and len(value.strip()) >= SHORTEST
    }
    named = (re.escape(value) for value in sorted(values, key=len, reverse=True))
    return re.compile("|".join((*named, *_SHAPES)))
