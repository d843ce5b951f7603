"""Secrets are masked wherever they stand, and what is none stays as it is (seed 004, sensitive_data_masking)."""

from __future__ import annotations

import time
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.masking.scanner import masked, masked_together

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
    assert (
        masked("my pin is 4711: type 4711, not 14711.")[0] == "my pin is [masked: pin]: type [masked: pin], not 14711."
    )


@pytest.mark.parametrize("word", ["red", "tea", "summer", "dragon"])
def test_a_short_word_is_masked_where_it_is_said_to_be_one_alone(word: str) -> None:
    assert masked(f"The password is {word}. The {word} boat, {word}!") == (
        f"The password is [masked: password]. The {word} boat, {word}!",
        1,
    )


def test_a_token_is_masked_to_its_end() -> None:
    """Detectors know the first characters of some, and others became longer than they were."""
    assert masked(f"ghp_{'a1' * 18}andmore behind")[0] == "[masked: GitHub Token] behind"
    assert masked(f"x {JWT} y")[0] == "x [masked: JSON Web Token] y"


def test_in_a_very_long_line_too() -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    for before in range(780, 1_020, 7):
        assert secret not in masked("x " * (before // 2) + secret + " y" * 900)[0]


# What is repeated: each has a pattern begin that goes on, or ends nowhere, or finds something each time.
HOSTILE = [
    "passwords are a1, ",
    "passwords:\n- a1b2c3\n",
    "passwords a a a a ",
    "password from a for b from ",
    "password: a1 -> ",
    "pass: a1b2c3 ",
    "pass for a b is ",
    "key for a b c ",
    "login is a:",
    "x9x9 (that's my password ",
    " is my is my is the ",
    *("a", " ", "\n", "\\", "'", "|", "A" * 64 + "\n", "The quick brown fox, 12 of them ", "\u200b", "é"),
    *(
        "password ",
        "password is ",
        "password='",
        "password: 'a",
        "password: \\",
        "password:\n",
        "password for a ",
        "pwd",
    ),
    *(
        "password: a ",
        "Passwort: geheim",
        "password=hunter2x ",
        "token of a a a ",
        "set a password to ",
        "use a ",
        "密码是x",
    ),
    *(
        "a is my password ",
        "use a a as password ",
        "| password ",
        "|---|\n",
        "<password ",
        "<password>",
        "name=password ",
    ),
    *(
        "mysql -p ",
        "curl -u a:",
        "htpasswd -b a ",
        "--token ",
        "Cookie: a=",
        "a=1; ",
        "a://b:c",
        "https://a",
        "?sig=",
        "&key=a1",
    ),
    *("eyJ", "eyJaaaaaa.", "xoxb-1-", "sk-", "SG.", "pypi-AgEIcHlwaS5vcmc", "MIIaaaIBAAKC", "b3BlbnNzaC1rZXktdjEA"),
    *(
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----END RSA PRIVATE KEY-----\n",
        "[masked: ",
        "[masked: x]",
        "login: bob:a1b2c3 ",
        "[masked: x]<token>" + " " * 80,
        "<token>" + " " * 300,
        "<password>\n \n" + "a" * 190 + " \n ]]> \n",
        "ssh a:b",
        "4111 1111 ",
        "4111111111111112-",
    ),
]


def seconds(text: str) -> float:
    began = time.process_time()
    masked(text)
    return time.process_time() - began


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_longer_than_its_length(piece: str) -> None:
    """Eight times the text takes about eight times as long; a bad pattern takes sixty-four times."""
    text = piece * (200_000 // len(piece))
    part = min(seconds(text[: len(text) // 8]) for _ in range(2))
    assert seconds(text) < 24 * part + 0.1


def test_nor_does_a_million_of_letters_of_all_that() -> None:
    text = "".join(piece * (20_000 // len(piece)) for piece in HOSTILE)
    assert len(text) > 1_000_000
    assert seconds(text) < 24 * seconds("".join(piece * (2_500 // len(piece)) for piece in HOSTILE)) + 0.1


def test_nor_do_many_secrets() -> None:
    text = "\n".join(f"password={number:08}x" for number in range(40_000))
    assert seconds(text) < 24 * seconds(text[: len(text) // 8]) + 0.1


def test_ordinary_text_takes_hardly_any_time() -> None:
    """Of 300 characters about 0.03 ms, and 0.1 ms where passwords and keys are spoken of."""
    text = "The ferry to Amrum leaves from pier seven, and Bob asked for the key to the cabin. " * 4
    assert min(timeit.repeat(lambda: masked(text), number=100, repeat=5)) < 100 * 0.001


@given(st.text(max_size=300))
def test_any_text_is_taken(text: str) -> None:
    found, count = masked(text)
    assert count == 0 or "[masked: " in found
