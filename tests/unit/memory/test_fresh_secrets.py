"""SEC-5, SEC-11, findings R1 and R11: secrets of any form are found where they were said, and never become a memory."""

from __future__ import annotations

import pytest
from tests.fresh_secrets import FRESH

from perdure.memory.changes import RenameMemory, SaveMemory, Stamp
from perdure.memory.remarks import remarks
from perdure.memory.save import file_names, memory_text, title_of
from perdure.memory.trust.gate import decide_change
from perdure.memory.trust.secrets import find_secrets, redact, secrets_of

pytestmark = pytest.mark.unit
WORDS = Stamp(origin="user", at=1.0)
KNOWN = (
    "ghp_" + "a1B2" * 9,
    "sk-ant-api03-" + "a1B2-" * 18 + "xAA",
    "xoxb-" + "1234567890-" * 2 + "a1B2" * 6,
    "sk_live_" + "a1B2" * 6,
    "npm_" + "a1B2" * 9,
    "glpat-" + "a1B2" * 5,
    "hf_" + "aBcDe" * 7,
    "curl -u deploy:a1B2c3D4 https://build.corp.net",
    "docker login -u ci -p a1B2c3D4 registry.corp.net",
)


@pytest.mark.parametrize(("text", "value"), [(text, value) for _, text, value in FRESH], ids=[one[0] for one in FRESH])
def test_a_fresh_secret_is_found_whole(text: str, value: str) -> None:
    """SEC-5, finding R11: by its name, its place or what people say of it, whatever it looks like."""
    start = text.index(value)
    assert [one for one in find_secrets(text) if one.start <= start and one.end >= start + len(value)]
    assert value not in redact(text).text


@pytest.mark.parametrize("secret", KNOWN, ids=[one[:8] for one in KNOWN])
def test_a_capital_hides_no_secret_from_the_gate(secret: str) -> None:
    """SEC-5, finding R1: what is kept begins with a capital; it is judged as it was said."""
    (remark,) = remarks(f"please remember that {secret} works for the nightly build always", 1.0)
    change = SaveMemory(name="project_nightly.md", text=memory_text(type=remark.type, body=remark.body))
    assert remark.text[0].isupper()
    for heard in (remark.heard, ()):  # also without the words as they were said
        found = decide_change(change, WORDS, "auto", heard)
        assert found.act == "refuse" and found.rule.startswith("secret:") and secret not in found.why


@pytest.mark.parametrize(("text", "value"), [(text, value) for _, text, value in FRESH], ids=[one[0] for one in FRESH])
def test_what_is_made_of_the_words_is_refused(text: str, value: str) -> None:
    """SEC-5, finding R1: titles, slugs and other cases of a secret that was said, in texts and in names of files."""
    heard = secrets_of(f"remember that {text}")
    body = f"We use {value.upper()} for this."
    name = next(file_names("project", title_of(f"use {value} here")))
    for change in (
        SaveMemory(name="a.md", text=body),
        SaveMemory(name="a.md", text=f"---\nname: {title_of(value)}\n---\n\nfine\n"),
    ):
        assert decide_change(change, WORDS, "auto", heard).act == "refuse"
    if value.isascii() and len(value) < 40:
        assert decide_change(SaveMemory(name=name, text="fine"), WORDS, "auto", heard).act == "refuse"
        assert decide_change(RenameMemory(name="a.md", to=name, base="fine"), WORDS, "auto", heard).act == "refuse"


def test_a_secret_elsewhere_in_a_message_is_no_reason_to_refuse() -> None:
    """SEC-5, MEM-6: what is worth keeping beside a secret is kept."""
    text = f"Remember that we deploy on Fridays. The token is {KNOWN[0]}."
    kept = {one.text: one for one in remarks(text, 1.0)}
    remark = kept["We deploy on Fridays."]
    change = SaveMemory(name="project_fridays.md", text=memory_text(type=remark.type, body=remark.body))
    assert remark.heard and decide_change(change, WORDS, "auto", remark.heard).act == "write"


def test_a_name_of_a_file_is_scanned_and_a_mark_is_not_kept() -> None:
    """SEC-5, finding R1: a secret as the name of a memory; a mark in place of one tells nobody anything."""
    named = SaveMemory(name=f"notes/{KNOWN[0]}.md", text="fine")
    assert decide_change(named, WORDS, "auto").rule == "secret:github-token"
    marked = SaveMemory(name="a.md", text=f"The token is {redact(KNOWN[0]).text}.")
    assert decide_change(marked, WORDS, "auto").rule == "secret:github-token"
    assert (
        decide_change(SaveMemory(name="a.md", text=f"{marked.text}\nmore", base=marked.text), WORDS, "auto").act
        == "write"
    )


def test_a_key_in_parts_is_found_in_each() -> None:
    """SEC-11, finding R11: a key file read in two results, with line numbers or without; a certificate isn't one."""
    lines = [("Ab3d" * 16)[at:] + ("Ab3d" * 16)[:at] for at in range(8)]
    whole = ["-----BEGIN RSA PRIVATE KEY-----", *lines, "Zz9=", "-----END RSA PRIVATE KEY-----"]
    numbered = [f"{number:6}\t{line}" for number, line in enumerate(whole, 1)]
    for shown in (whole, numbered):
        for part in (shown[:4], shown[4:8], shown[6:]):
            text = redact("\n".join((*part, ""))).text
            assert not [line for line in lines if line in text], text
    certificate = "\n".join(("-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----"))
    assert find_secrets(certificate) == ()


@pytest.mark.parametrize(
    "text",
    [
        "verdict: pass ? 'pass' : 'fail'",
        "password = form.password",
        "connect(user=user, password=password)",
        "def login(self, password: str) -> None:",
        "username: string\npassword: string",
        "PASS: test_login.sh",
        "--password is required unless --token-file is given",
        "the password is required for all accounts",
        "max_tokens: 4096, next_token=page-two-of-five",
        'VIEW_MODE_KEY = "sessions-view-mode"',
        "fail-to-pass tests and pass-to-pass tests",
        "密码使用 SHA256 加密",
        "POSTGRES_PASSWORD=postgres",
        "MYSQL_PASSWORD_FILE=/run/secrets/mysql",
        "token: ${{ secrets.GITHUB_TOKEN }}",
    ],
)
def test_what_only_names_a_secret_is_left_alone(text: str) -> None:
    """SEC-5: code, types, options, outcomes of tests and stand-ins hold no secret."""
    assert find_secrets(text) == ()


def test_a_cookie_behind_a_short_one_is_found() -> None:
    """SEC-5: the value that tells a session may stand behind a preference of a few letters."""
    text = "Cookie: theme=dark; shop=k3v9q0zt7m2x8w1r5y6n4b0c2d8f1h3j; lang=de"
    assert "k3v9q0zt7m2x8w1r5y6n4b0c2d8f1h3j" not in redact(text).text
    assert find_secrets("Cookie: theme=dark; lang=de") == ()


def test_recovery_codes_on_lines_of_their_own_are_found() -> None:
    """SEC-5: sites print one code in a line."""
    codes = ("5f3a1-9c0de", "a71b2-44e0c", "08dd3-b91f7")
    shown = redact("\n".join(("Recovery codes:", *codes, "Keep them."))).text
    assert not [code for code in codes if code in shown] and shown.endswith("\nKeep them.")


@pytest.mark.parametrize("mark", ["> ", "    12→", "-", "# "])
def test_a_key_is_found_behind_what_stands_before_its_lines(mark: str) -> None:
    """SEC-5, finding R11: quoted, with numbers of lines, in a diff, in a comment."""
    lines = [f"MIIEowIBAAKCAQEA7{letter * 47}" for letter in "abcdef"]
    whole = ("-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----")
    key = "\n".join(mark + line for line in whole)
    left = redact(f"Here it is:\n{key}\n", bytes(32)).text
    assert not any(line in left for line in lines)
