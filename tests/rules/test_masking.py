"""Masking replaces secrets and leaves other text unchanged (seed 004, sensitive_data_masking)."""

import json
import time
import timeit
from itertools import product
from unittest import mock

import pytest
import requests

from memory.masking.scanner import masked, masked_together
from memory.policy.validation import looks_secret

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nq83vEjRW==\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
HEX = "0123456789abcdef"
MIXED = "a1B2c3D4e5F6g7H8i9J0"

# (text with the secret as §, the secret)
PAIRS = [
    # with an equals sign
    *(("DB_PASSWORD=§", "swordfish"), ("export MYSQL_PWD='§'", "swordfish")),
    *(("PGPASSWORD=§ psql -h db", "swordfish"), ("GITHUB_TOKEN_PROD=§", "abc123def")),
    ("OPENAI_API_KEY=§", "abcdef0123456789abcdef"),
    ("aws_secret_access_key = §", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    *(("spring.datasource.password=§", "swordfish"), ("Server=db;User=sa;Password=§;Encrypt=yes", "swordfish")),
    *(("password=§&user=bob", "hunter2"), ("-Dpassword=§", "swordfish")),
    *(("client_secret: §", "abcdefghijklmnopqrstuvwxyz"), ("_auth=§", "Ym9iOmh1bnRlcjI=")),
    *(("psk=§", "Sword-fish-12"), ("smtp: user=x, pass=§", "hunter2")),
    ("https://s3.example/x?X-Amz-Credential=a&X-Amz-Signature=§", HEX * 4),
    ("https://maps.example/api?key=§", MIXED),
    # with a colon
    *(("password: §", "swordfish"), ("password: §", "#Tr0ub4dor&3"), ("username: admin, password: §", "swordfish")),
    *(("**Password:** §", "swordfish"), ("`password`: `§`", "swordfish"), ("> password: §", "swordfish")),
    *(("Password (for bob): §", "swordfish"), ("password for the staging server: §", "swordfish")),
    *(("X-Api-Key: §", "abc123def"), ("token: §", "2e374819812b"), ("pin: §", "4711")),
    ("passphrase: §", "correct horse battery staple"),
    ("seed phrase: §", "ripple scissors kick mammal hire column oak sun offer tomorrow wagon tell"),
    *(("Passwort: §", "geheim"), ("пароль: §", "секрет"), ("密码：§", "hunter2")),
    *(("password\u200b:\u200b §", "swordfish"), ("ｐａｓｓｗｏｒｄ: §", "swordfish")),
    ("- name: DB_PASSWORD\n  value: §", "swordfish"),
    # JSON and code
    *(('"password": "§",', "correct horse battery staple"), ('{"password":"§"}', r"a\"b'c")),
    *(("{'client_secret': '§'}", "q8Zk3v0xQ"), ('{"name": "DB_PASSWORD", "value": "§"}', "swordfish")),
    *(('SecretString: \'{"password":"§"}\'', "swordfish"), (r"{\"password\": \"§\"}", "swordfish")),
    *((r'{"body": "{\"api_key\": \"§\"}"}', "abc123def"), ('config["password"] = "§"', "swordfish")),
    *(("'password' => '§',", "swordfish"), ("password: b'§'", "swordfish"), ("password: “§”", "swordfish")),
    *(("<db.password>§</db.password>", "swordfish"), ('<property name="password" value="§"/>', "swordfish")),
    # sentences
    *(("my password is §", "hunter2"), ("the password for the staging database is §.", "Tr0ub4dor&3")),
    *(("mein Passwort ist §", "geheim7"), ("the secret is §", "q8Zk3v0xQ")),
]
PLACED = [
    *(("Authorization: Bearer §", "abcdef123456"), ("authorization: Basic §", "Ym9iOmh1bnRlcg==")),
    *(("Authorization: token §", "abc123def"), ('{"Authorization": "Bearer §"}', "abc.def.ghi123")),
    *(("postgres://bob:§@db:5432/x", "s3cr3t"), ("redis://:§@cache", "swordfish")),
    *(("https://bob:§@acme.example/x", "sw%20rd!"), ("clone https://§@github.com/acme/x", "0123456789abcdef0123")),
    *(("look:\n> §\nthat was it", PEM), ('{"key": "§"}', PEM.replace("\n", "\\n"))),
    ("bob:§", "$apr1$Zr8xY9wQ$abcdefghijklmnopqrstu0"),
]
TOKENS = [
    # one for each plugin of detect-secrets
    *("AKIA" + "IOSFODNN7EXAMPLE", "AccountKey=" + MIXED * 4 + "abcdef=="),
    *("M" + "TIzNDU2Nzg5MDEyMzQ1Njc4" + ".G" + "abcde." + MIXED + "abcdefg", "ghp_" + "a1" * 18, "ghp_" + "a1" * 30),
    *("glpat-" + MIXED, JWT, HEX * 2 + "-us12", "sk-" + MIXED + "T3BlbkFJ" + MIXED),
    *("pypi-AgEIcHlwaS5vcmc" + MIXED * 5, "SG." + MIXED + "aa." + MIXED * 2 + "abc", "xoxp-123456789012-" + MIXED),
    *("https://hooks.slack.com/services/" + "T00000000/B00000000/abcdefghijklmnop", "sq0csp-" + MIXED * 2 + "abc"),
    *("sk_live_" + MIXED + "abcd", "123456789:AA" + MIXED + "abcdefghijklm", "SK" + HEX * 2),
    # own patterns
    *("pal_k3v9x1m7q2aa_aVeryLongSecretThatIsShownOnce", "palt_k3v9x1m7q2aa_aVeryLongSecretThatIsShownOnce"),
    *("github_pat_" + MIXED * 3, "sk-ant-api03-" + MIXED * 4, "AIza" + "Sy" * 17 + "1", "hf_" + "aBcDeFgHi1" * 3),
    *("hvs." + MIXED * 2, "https://discord.com/api/webhooks/123456789012345678/" + MIXED * 3),
    "abc8Q~" + MIXED + "abcdefghijklm",
]
BLOCKS = [
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n§==\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: x\n\nlQOYBF§\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIEpAIBAAKCAQEA§",  # it breaks off
    "PuTTY-User-Key-File-3: ssh-ed25519\n§\nPrivate-MAC: 0123456789abcdef",
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n§",  # without its first line
]

INNOCENT = [
    # placeholders and shell defaults
    "POSTGRES_PASSWORD: ${POSTGRES_PASSWORD:-postgres}",
    "POSTGRES_PASSWORD=${POSTGRES_PASSWORD:-${DEFAULT_PASSWORD:-postgres}}",
    'psql "postgres://app:${DB_PASSWORD:-postgres}@db/app"; echo "${DB_PASSWORD:?}" "${API_TOKEN:=abc123def4}"',
    "API_KEY=<your key>, api_key: <your-api-key>, API_KEY=your-api-key-here1",
    "password: changeme, PASSWORD=change_me, password: xxx, password: '********', token: ...",
    "api_key: ${API_KEY}, password: $DB_PASSWORD, token: <your token>, password: ${{ secrets.DB_PASSWORD }}",
    "password=os.environ['DB_PASSWORD'], API_KEY=os.environ[\"API_KEY\"], TOKEN=$(cat /run/secrets/token1)",
    'password_hash: "{{ password | hash }}", password: !vault |, password: /run/secrets/db_password',
    "EMAIL_URL=smtp+tls://USER:PASSWORD@HOST:587",
    # code and types
    "def login(user: str, password: str) -> Token:\n    token = get_token(user, password)\n    return token",
    "password = settings.DB_PASSWORD; self.token = token; tokens[0] = token; password1 = password2",
    "for token in tokens: print(token.text)",
    "password = form.cleaned_data['password']; password = getpass.getpass(); connect(password=db_password)",
    "const { token, secret } = useAuth(); setToken(token); password_change_done = password_change",
    '<input type="password" name="password"> <password>string</password>',
    '{"budget_tokens": 9000}, MaxTokens: `4096`, max_token: 4096, tokens=1024, token_count: 12',
    '{"token": null, "password": "", "secret": false, "token": 12345678, "password": 12345678}',
    "private key: Ed25519; token: RS256; TOKEN_COUNTER is tiktoken:o200k_base; pin: GPIO17",
    "private_key: rsa.RSAPrivateKey, private_key_path = '/etc/ssl/key.pem', PWD=/home/bob/site",
    "ACCESS_TOKEN = OAUTH2_ACCESS_TOKEN; pass=1, pass: 12ms, fail: 3; PASS: tests/test_x.py",
    # sentences about secrets
    "password: required, password: string, token: optional",
    '{"password": "Enter your password", "token": "Your token goes here"}',
    "The password is wrong, the token is expired and the secret is out. The password is stored in the vault.",
    "password: must be at least 12 characters, passwords: minimum 12 characters, hashed with argon2id",
    "password: the user's password, hashed; Our password: nobody knows it anymore.",
    "The seed phrase has 12 words. The recovery phrase is stored on paper.",
    "commit 9f86d08: fix password: trim spaces before hashing",
    "The token limit is 4096 tokens; the token budget is 4000; Key: C major.",
    "secret santa: Ann gives to Bob; her secret: cinnamon; 1Password and KeePass are password managers",
    "Bearer of bad news, basic authentication, WWW-Authenticate: Bearer realm=x",
    # text that looks like a token
    "Released on 2026-11-22T14:30:00Z, as 550e8400-e29b-41d4-a716-446655440000.",
    "Fixed in commit 2e374819812b7b29f537a24f69acbd78be068790, see #1234.",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "Donaudampfschifffahrtsgesellschaftskapitän and pneumonoultramicroscopicsilicovolcanoconiosis",
    "keyJobs.run_all(), eyJ, APACHEFRIENDS, 203.0.113.7",
    "hf_model_name_version_2, sk-learn-model-version-2, secret_access_key_2024",
    "git@github.com:acme/site.git, http://localhost:8000/a@b, mailto:ann2@acme.example",
    "https://acme.example/x?page=2&key=name&code=404",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 bob@acme.example",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0B\n-----END CERTIFICATE-----",
    "",
]


def is_masked(around: str, secret: str) -> bool:
    """The secret is replaced, once, and masked JSON is still JSON."""
    text = around.replace("§", secret)
    found, count = masked(text)
    is_json = json.loads(masked(json.dumps({"n": text}))[0]).keys() == {"n"}
    return secret not in found and count == 1 and found.startswith(around.partition("§")[0][:3]) and is_json


def test_each_secret_is_masked() -> None:
    assert [pair for pair in PAIRS + PLACED if not is_masked(*pair)] == []


def test_each_token_is_masked_to_its_end() -> None:
    places = ["push it with § please", "x=§", '{"a": "§", "b": 1}', "(§)", "§", r"line\n§"]
    for around, token in product(places, TOKENS):
        found, count = masked(around.replace("§", token))
        assert (token[-12:] in found, count, looks_secret(token)) == (False, 1, True), token
        assert found.endswith(around.partition("§")[2])


def test_a_private_key_is_masked() -> None:
    body = "\n".join(["q83vEjRW" * 8] * 3)
    for block in BLOCKS:
        found, _ = masked(f"before\n{block.replace('§', body)}\nThat was the key.")
        assert found == "before\n[masked: Private Key]\nThat was the key."


def test_other_text_stays() -> None:
    assert {text: masked(text) for text in INNOCENT} == {text: (text, 0) for text in INNOCENT}
    found, _ = masked("Ask Ann: my password is hunter2, not yours.")
    assert found == "Ask Ann: my password is [masked: password], not yours."
    assert masked("postgres://bob:s3cr3t@db/x") == ("postgres://bob:[masked: password in a URL]@db/x", 1)


def test_a_secret_is_masked_wherever_it_is_repeated() -> None:
    """A short secret only as a whole word; an ordinary word only where it is a password."""
    found, count = masked("my password is hunter2.\nNo, really: I type hunter2 (in lower case) there.")
    assert (count, "hunter2" in found) == (2, False)
    texts, _ = masked_together(["my password is hunter2", "I'll use hunter2 then."])
    assert texts == ["my password is [masked: password]", "I'll use [masked: password] then."]
    assert masked("my pin is 4711: type 4711, not 14711.")[0].endswith(": type [masked: pin], not 14711.")
    text = "POSTGRES_PASSWORD=postgres\nWe use postgres for all services."
    assert masked(text) == (text.replace("=postgres", "=[masked: password]"), 1)


def test_a_secret_is_masked_anywhere_in_a_very_long_line() -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    for before in range(380, 620, 7):
        assert secret not in masked("x " * (before // 2) + secret + " y" * 900)[0]


def test_masking_sends_no_request_to_verify_a_token() -> None:
    key, secret = "AKIA" + "IOSFODNN7EXAMPLE", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY" + "ab"
    with mock.patch.object(requests.Session, "request", side_effect=AssertionError) as request:
        assert masked(f'aws_key = "{key}"\naws_secret = "{secret}"')[1] == 2
    request.assert_not_called()


# Beginnings, middles and ends of patterns, which a slow pattern would try again and again.
HOSTILE = [
    ("a", "1", " ", "\n", "\\", "'", '\\"', "/", "-", "_", "A" * 64 + "\n", "\u200b", "é", "The quick brown fox, 12 "),
    ("password ", "password is ", "password='", "password: 'a", "password: \\", "password for a b ", "pwd"),
    ("password: a ", "Passwort: geheim", "password=hunter2x ", "pass: a1b2c3 ", "passphrase: a b c d ", "密码是x"),
    ("token: value", "secret" + " " * 300 + "\n", "<token>" + " " * 300, "<password>", "&key=a1", "${", "${a:-", "{{"),
    ("a://b:c", "x@", "https://a", "authorization: ", "[masked: ", "[masked: x]", "[masked: x]<token>" + " " * 80),
    ("eyJ", "eyJaaaaaa.", "xoxb-1-", "sk-", "sk-" + "a" * 24, "SG.", "pypi-AgEIcHlwaS5vcmc", "AKIA", "$2b$12$"),
    ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----\n", "PuTTY-User-Key-File-2: "),
    ("-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n", "MIIaaaIBAAKC", "b3BlbnNzaC1rZXktdjEA\n"),
]


def seconds(text: str) -> float:
    began = time.process_time()
    masked(text)
    return time.process_time() - began


@pytest.mark.parametrize("pieces", HOSTILE, ids=lambda pieces: ascii(pieces[0])[:20])
def test_the_time_grows_with_the_length_of_the_text(pieces: tuple[str, ...]) -> None:
    """Eight times the text takes about eight times as long. A slow pattern takes sixty-four times."""
    for piece in pieces:
        text = piece * (60_000 // len(piece))
        part = min(seconds(text[: len(text) // 8]) for _ in range(2))
        assert min(seconds(text) for _ in range(2)) < 24 * part + 0.1, piece


def test_the_time_grows_with_the_length_of_mixed_texts_and_many_secrets() -> None:
    for text in (
        "".join(piece * (5_000 // len(piece)) for pieces in HOSTILE for piece in pieces),
        "\n".join(f"password={number:08}x" for number in range(10_000)),
    ):
        part = sum(seconds(text[at : at + len(text) // 8]) for at in range(0, len(text), len(text) // 8)) / 8
        assert seconds(text) < 24 * part + 0.1


def test_ordinary_text_takes_less_than_a_millisecond() -> None:
    text = "The ferry to Amrum leaves from pier seven, and Bob asked for the key to the cabin. " * 4
    assert min(timeit.repeat(lambda: masked(text), timer=time.process_time, number=100, repeat=5)) < 100 * 0.001
