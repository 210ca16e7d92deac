"""Two tiers of one suite (HSE-5): `make test` runs while one thinks, `make nightly` runs everything at its full number.

A test that takes minutes, kills, storms or starts real clients is marked `nightly`; of a large table the quick tier
takes the cases that `quick(n)` names, and of a law fewer examples.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import settings

_ASKED = os.environ.get("PERDURE_NIGHTLY", "0")
if not _ASKED.isdecimal():
    raise pytest.UsageError(f"PERDURE_NIGHTLY must be a whole number, got {_ASKED!r}: 1 runs the tests of the night")
TIMES = int(_ASKED)
"""0 in the quick tier, 1 at night; laws, kills and damage are tried that many times over (`make nightly TIMES=20`)."""

NIGHTLY = TIMES > 0

DATABASES = ("postgres", "pooled", "bucket")
"""How tests over several stores name those in PostgreSQL."""


def examples(count: int) -> settings:
    """Return the settings of a law: `count` examples at night, an eighth of them in the quick tier."""
    return settings(max_examples=count * TIMES if NIGHTLY else max(5, count // 8))


def select_nightly(items: Iterable[pytest.Item]) -> set[str]:
    """Return the ids of the tests that the quick tier leaves out.

    Those marked `nightly`; of a parametrized test marked `quick(n)` all but n cases, spread evenly over its table; and
    the database among several stores, unless it is marked `both_stores` or is about that store alone (`only_on`).
    """
    left, tables = set[str](), defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("nightly") is not None or _is_on_another_store(item):
            left.add(item.nodeid)
        elif item.get_closest_marker("quick") is not None:
            tables[item.nodeid.partition("[")[0]].append(item)
    for cases in tables.values():
        marker = cases[0].get_closest_marker("quick")
        assert marker is not None
        count = min(marker.args[0], len(cases))
        kept = {place * len(cases) // count for place in range(count)}
        left |= {case.nodeid for place, case in enumerate(cases) if place not in kept}
    return left


def needs_postgres(item: pytest.Item) -> bool:
    """Return whether a test asks for a server, by a fixture or as one of its stores."""
    return _is_on_database(item) or "postgres_server" in getattr(item, "fixturenames", ())


def _is_on_database(item: pytest.Item) -> bool:
    cases = getattr(item, "callspec", None)
    return cases is not None and any(value in DATABASES for value in cases.params.values())


def _is_on_another_store(item: pytest.Item) -> bool:
    is_asked_for = any(item.get_closest_marker(name) is not None for name in ("both_stores", "only_on"))
    return not is_asked_for and _is_on_database(item)
