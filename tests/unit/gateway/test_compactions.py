"""Sealed places, which clients keep in place of their history (GW-6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.gateway.compactions import SEALED, PlaceSeal

pytestmark = pytest.mark.unit
SECRET = b"s" * 32
counts = st.integers(0, 2**40)
links = st.binary(min_size=32, max_size=32)


@given(counts, links)
def test_a_place_is_opened_by_its_tenant_alone(count: int, link: bytes) -> None:
    """GW-6: not by another tenant, nor by another gateway."""
    sealed = PlaceSeal(SECRET, "alice").sealed(count, link)
    assert sealed.startswith(SEALED) and sealed.isascii()
    assert PlaceSeal(SECRET, "alice").opened(sealed) == (count, link)
    assert PlaceSeal(SECRET, "bob").opened(sealed) is None
    assert PlaceSeal(b"t" * 32, "alice").opened(sealed) is None


@given(counts, links, st.data())
def test_a_place_that_was_changed_is_none(count: int, link: bytes, data: st.DataObject) -> None:
    """GW-6: no character of it can be another, and nothing can be added or cut off."""
    seal = PlaceSeal(SECRET, "alice")
    sealed = seal.sealed(count, link)
    at = data.draw(st.integers(len(SEALED), len(sealed) - 1))
    other = data.draw(st.sampled_from("AZaz09-_=!é"))
    changed = data.draw(st.sampled_from([sealed[:at] + other + sealed[at + 1 :], sealed[:at], sealed + other]))
    assert seal.opened(changed) in (None, (count, link)), "padding may be said in several ways; a place can't"


@given(st.text())
def test_what_was_never_sealed_is_none(text: str) -> None:
    """GW-6: whatever a client makes up."""
    assert PlaceSeal(SECRET, "alice").opened(SEALED + text) is None
