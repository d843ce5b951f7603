"""Secrets are masked wherever they stand, and what is none stays as it is (seed 004, sensitive_data_masking)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.rules.masking import masked, masked_together

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nq83vEjRW==\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

# (text with the secret as §, the secret)
SECRETS = [
    ("key § here", "AKIA" + "IOSFODNN7EXAMPLE"),
    ("aws_secret_access_key = §", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("push with § please", "ghp_" + "a1" * 18),
    ("push with § please", "github_pat_" + "a1B2" * 15),
    ("clone https://§@github.com/acme/x", "0123456789abcdef0123"),
    ("slack: §", "xoxb-123456789012-123456789012-" + "abcdEFGH1234"),
    ("post to §", "https://hooks.slack.com/services/" + "T00000000/B00000000/abcdefghijklmnop"),
    ("pay with §", "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"),
    ("pay with §", "rk_live_" + "4eC39HqLyjWDarjtT1zdp7dcLongerThanItWas"),
    ("OPENAI_API_KEY=§", "sk-proj-" + "abcDEF123456789012345678"),
    ("§", "glpat-" + "abcdefghij0123456789"),
    ("§", "SG." + "a" * 22 + "." + "b" * 43),
    ("§", "npm_" + "a1" * 18),
    ("§", "AIza" + "Sy" * 17 + "1"),
    ("cookie §;", JWT),
    ("look:\n> §\nthat was it", PEM),
    ('{"key": "§"}', PEM.replace("\n", "\\n")),
    ("§", "-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nq83vEjRW"),  # it breaks off
    ("my key is §", "pal_k3v9x1m7q2aa_aVeryLongSecretThatIsShownOnce"),
    ("the tenant's is §", "palt_k3v9x1m7q2aa_aVeryLongSecretThatIsShownOnce"),
    ("postgres://bob:§@db:5432/x", "s3cr3t"),
    ("redis://:§@cache", "swordfish"),
    ("curl -u bob:§ https://acme.example", "hunter2"),
    ("Authorization: Bearer §", "abcdef123456"),
    ("authorization: Basic §", "Ym9iOmh1bnRlcg=="),
    ("X-Api-Key: §", "abc123def"),
    ("my password is §", "hunter2"),
    ("My password is §.", "swordfish"),
    ("my password is §, remember it", "john.smith2"),
    ("the password for the staging database is §.", "Tr0ub4dor&3"),
    ("**Password**: §", "hunter2"),
    ("use password § there", "hunter2"),
    ("§ is my password", "hunter2"),
    ("mein Passwort ist §", "geheim7"),
    ("DB_PASSWORD=§", "swordfish"),
    ('config["password"] = "§"', "swordfish"),
    ('"password": "§",', "correct horse battery staple"),
    ("token: §", "2e374819812b"),
    ("the API token is §.", "abc123"),
    ("{'client_secret': '§'}", "q8Zk3v0xQ"),
    ("mysql --password § -h db", "swordfish"),
    ("my pin is §", "4711"),
    ("password=§&user=bob", "hunter2"),
    ("DB_PASSWORD=§", "password123"),
    ("GITHUB_TOKEN_PROD=§", "abc123def"),
    ("accessToken: '§'", "abc123def"),
]

INNOCENT = [
    "Released on 2026-11-22T14:30:00Z, as 550e8400-e29b-41d4-a716-446655440000.",
    "Fixed in commit 2e374819812b7b29f537a24f69acbd78be068790, see #1234.",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "Donaudampfschifffahrtsgesellschaftskapitän and pneumonoultramicroscopicsilicovolcanoconiosis",
    "def login(user: str, password: str) -> Token:\n    token = get_token(user, password)\n    return token",
    "password = settings.DB_PASSWORD",
    "password=os.environ['DB_PASSWORD']",
    "api_key: ${API_KEY}, password: $DB_PASSWORD, token: <your token>",
    "self.token = token; tokens[0] = token",
    "password1 = password2",
    "The password is wrong, the token is expired and the secret is out.",
    "The password is stored in the vault; it is at least 12 characters long.",
    "I forgot my password. Reset your password: click on the link.",
    "passwords: minimum 12 characters, hashed with argon2id",
    "The token limit is 4096 tokens; we used tokens: 512.",
    "secret santa: Ann gives to Bob",
    "Bearer of bad news, basic authentication",
    "git@github.com:acme/site.git, http://localhost:8000/a@b, mailto:ann@acme.example",
    "https://acme.example/path?page=2&size=10",
    "The ferry leaves at 14:30 from pier 7; call +49 30 901820.",
    "for token in tokens: print(token.text)",
    '<input type="password" name="password">',
    '{"budget_tokens": 9000}, MaxTokens: `4096`, max_token: 4096, tokens=1024',
    "row.budget_tokens:.0f, agents.filter(budget_tokens__gt=0).select_related(x1)",
    "TOKEN_COUNTER is tiktoken:o200k_base",
    "proxy_pass http://127.0.0.1:8000;",
    "Forgot your password? https://acme.example/reset2 or token: https://acme.example/v1",
    "EMAIL_URL=smtp+tls://USER:PASSWORD@HOST:587",
    "password_change_done = password_change",
    "WWW-Authenticate: Bearer realm=x",
    "secrets: 3 found, see https://acme.example/secrets2",
    "",
]


@pytest.mark.parametrize(("around", "secret"), SECRETS)
def test_a_secret_is_masked(around: str, secret: str) -> None:
    found, count = masked(around.replace("§", secret))
    assert secret not in found
    assert "[masked: " in found
    assert count >= 1


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == (text, 0)


def test_all_else_of_a_line_stays() -> None:
    assert masked("Ask Ann: my password is hunter2, not yours.") == (
        "Ask Ann: my password is [masked: password], not yours.",
        1,
    )
    assert masked(f"before\n{PEM}\nafter") == ("before\n[masked: Private Key]\nafter", 1)
    assert masked("postgres://bob:s3cr3t@db/x") == ("postgres://bob:[masked: address credentials]@db/x", 1)


def test_a_secret_is_masked_each_time_it_is_said() -> None:
    found, count = masked("my password is hunter2.\nNo, really: I type hunter2 (in lower case) there.")
    assert (count, "hunter2" in found) == (2, False)


def test_what_one_says_is_masked_where_another_repeats_it() -> None:
    said, answered = masked_together(["my password is hunter2", "I'll use hunter2 then."])[0]
    assert (said, answered) == ("my password is [masked: password]", "I'll use [masked: password] then.")


def test_a_short_secret_is_found_again_as_a_word_alone() -> None:
    assert masked("my password is tea! We drink tea with steam.")[0].endswith("We drink [masked: password] with steam.")


def test_a_token_is_masked_to_its_end() -> None:
    """Detectors know the first characters of some, and others became longer than they were."""
    assert masked(f"ghp_{'a1' * 18}andmore behind")[0] == "[masked: GitHub Token] behind"
    assert masked(f"x {JWT} y")[0] == "x [masked: JSON Web Token] y"


def test_in_a_very_long_line_too() -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    for before in range(780, 1_020, 7):
        assert secret not in masked("x " * (before // 2) + secret + " y" * 900)[0]


HOSTILE = {
    "one letter": "a" * 200_000,
    "blanks": " " * 200_000,
    "lines": "\n" * 200_000,
    "a password of blanks": "password" + " " * 199_000,
    "half a web token": "eyJ" * 66_666,
    "keys that do not end": "-----BEGIN RSA PRIVATE KEY-----" * 6_000,
    "quotes": "password='" * 20_000,
    "addresses": "a://b:c" * 28_000,
    "of a of a": "token of a a a " * 13_000,
    "ten thousand secrets": "\n".join(f"password={i:08}x" for i in range(10_000)),
    "slack": "xoxb-1-" * 28_000,
    "pypi": "pypi-AgEIcHlwaS5vcmc" * 10_000,
    "is": "password is " * 16_000,
    "words": "The quick brown fox, 12 of them " * 6_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_long(name: str) -> None:
    began = time.process_time()
    masked(HOSTILE[name])
    assert time.process_time() - began < 3  # they take about 0.1 s, and a bad pattern minutes


PIECES = [
    "password",
    " is ",
    "=",
    ": ",
    "hunter2",
    "\n",
    "'",
    "token",
    "the ",
    "AKIAIOSFODNN7EXAMPLE",
    "[masked: x]",
    " ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_masking_what_is_masked_changes_nothing(text: str) -> None:
    once, _ = masked(text)
    assert masked(once) == (once, 0)


@given(st.text(max_size=300))
def test_any_text_is_taken(text: str) -> None:
    found, count = masked(text)
    assert count == 0 or "[masked: " in found
