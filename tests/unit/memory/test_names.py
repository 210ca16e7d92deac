"""SEC-2: which names may be used below a root, before any disk is asked."""

from __future__ import annotations

import pytest

from perdure.errors import NameRefused
from perdure.memory.places import MEMORY_NAMES, OWN, PROJECT, name_for_people, parts_of, refusal

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "name",
    ["MEMORY.md", "feedback_build.md", "team/MEMORY.md", "a b.md", "日本語.md", "grüße.md", "a..b.md", "e-5%.md"],
)
def test_usual_names_may_be_used(name: str) -> None:
    """SEC-2, MEM-1: names that memory directories have, in any script."""
    assert refusal(name) is None
    assert parts_of(name) == tuple(name.split("/"))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "empty"),
        ("/etc/passwd", "relative"),
        ("~/x", "relative"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("a/../b", ".."),
        ("./a", ". or .."),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\u202eb", "direction"),
        ("a\u200bb", "invisible"),
        ("a\ud800", "surrogate"),
        ("a\U000e0041", "invisible"),
        ("a\u2028b", "separator"),
        ("a\u00a0b", "blank"),
        ("a\u3164b", "blank"),
        ("a\\x", "one of"),
        ("C:x", "one of"),
        ("a\u2215x", "slash"),
        ("\uff0e\uff0e", "dot"),
        ("a\uff0fb", "dot"),
        ("%2e%2e", "percent"),
        ("x ", "ends"),
        ("x.", "ends"),
        ("con.md", "device"),
        ("LPT1", "device"),
        ("e\u0301.md", "composed"),
        (".git", "dot"),
        ("a" * 256, "longer"),
        ("/".join(["d" * 60] * 19), "bytes"),
        ("/".join("x" * 21), "deep"),
    ],
)
def test_others_are_refused_with_the_reason(name: str, word: str) -> None:
    """SEC-2: one line that names the file and says why."""
    assert word in (refusal(name) or "")
    with pytest.raises(NameRefused) as error:
        parts_of(name)
    assert "\n" not in str(error.value) and str(error.value).isprintable()


def test_rules_differ_by_who_asks() -> None:
    """SEC-2: our own state is hidden; a project's files may have names that only its system holds; neither goes up."""
    assert refusal(".perdure/lock", OWN) is None
    assert refusal(".perdure/lock", MEMORY_NAMES) is not None
    assert refusal("docs/what? now.txt", PROJECT) is None
    for rules in (OWN, PROJECT):
        for name in ("../x", "a/../x", "/x", "a\0", "a\u202e"):
            assert refusal(name, rules) is not None


def test_names_are_shown_without_hidden_characters() -> None:
    """SEC-2: an error never prints what it refuses as it is."""
    assert name_for_people("a\u202eb") == r"'a\u202eb'"
    assert len(name_for_people("x" * 500)) == 80
