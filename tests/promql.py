"""PromQL as far as dashboards and alarms need it: read and checked in one pass.

Which metrics there are, with labels and kinds, is told by the one who asks. So an expression of a metric that isn't
there is an error, and so are a rate of a gauge and an operator between two sides whose labels never match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["counter", "gauge", "bucket"]
Type = Literal["scalar", "vector", "matrix"]

TARGET = frozenset({"job", "instance"})  # every series has these, from the scrape
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"[^"]*")|(?P<duration>\d+[smhdw]\b)|(?P<number>\d+(?:\.\d+)?)
    |(?P<name>[A-Za-z_:][\w:]*)|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){}\[\],=<>]))""",
    re.X,
)
_LEVELS = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/", "%"))
_AGGREGATES = {"sum", "min", "max", "avg", "count"}
_FUNCTIONS: Mapping[str, tuple[tuple[Type, ...], Type]] = {
    "rate": (("matrix",), "vector"),
    "increase": (("matrix",), "vector"),
    "histogram_quantile": (("scalar", "vector"), "vector"),
    "vector": (("scalar",), "vector"),
    "scalar": (("vector",), "scalar"),
}


class BadExpression(ValueError):
    """An expression that Prometheus would refuse, or that can never give anything."""


@dataclass(frozen=True, slots=True)
class SeriesOf:
    """A metric: its kind, its own labels, and for a bucket the bounds that it has."""

    kind: Kind
    labels: frozenset[str] = frozenset()
    bounds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Gives:
    """What an expression gives: its type, the labels that its series have, and of what it is made."""

    type: Type
    labels: frozenset[str] = frozenset()
    kind: Kind = "gauge"


@dataclass(slots=True)
class PromExpression:
    """One expression. `names` are the metrics in it, `values` the (label, value) of its matchers."""

    text: str
    known: Mapping[str, SeriesOf]
    names: set[str] = field(default_factory=set)
    values: set[tuple[str, str]] = field(default_factory=set)
    _tokens: list[tuple[str, str]] = field(default_factory=list)
    _at: int = 0

    def read(self) -> Gives:
        """Read and check all of it.

        Raises:
            BadExpression: with what is wrong.
        """
        place, text = 0, self.text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise BadExpression(f"not PromQL: {text[place : place + 20]!r}")
            self._tokens.append((found.lastgroup or "", found[found.lastgroup or 0]))
            place = found.end()
        gives = self._binary(0)
        if self._at < len(self._tokens):
            raise BadExpression(f"something behind the end: {self._tokens[self._at][1]!r}")
        return gives

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise BadExpression("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _sees(self, *texts: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at][1] in texts

    def _takes(self, text: str) -> bool:
        is_there = self._sees(text)
        self._at += is_there
        return is_there

    def _wants(self, what: str) -> str:
        """The next token, which has this kind, or is this sign."""
        kind, text = self._next()
        if what not in (kind, text):
            raise BadExpression(f"{what} was expected, not {text!r}")
        return text

    # --- the grammar --------------------------------------------------------------------------------------------------

    def _binary(self, level: int) -> Gives:
        if level == len(_LEVELS):
            return self._single()
        left = self._binary(level + 1)
        while self._sees(*_LEVELS[level]):
            sign = self._next()[1]
            left = self._joined(sign, left, self._binary(level + 1))
        return left

    def _joined(self, sign: str, left: Gives, right: Gives) -> Gives:
        types = {left.type, right.type}
        if "matrix" in types:
            raise BadExpression(f"{sign} takes no range")
        if sign in ("or", "and", "unless") and types != {"vector"}:
            raise BadExpression(f"{sign} takes two vectors")
        if types == {"vector"} and left.labels != right.labels:
            raise BadExpression(f"{sign} never matches {sorted(left.labels)} with {sorted(right.labels)}")
        if types == {"scalar"}:
            return Gives("scalar")
        vector = left if left.type == "vector" else right
        if vector.kind != "gauge" and sign not in ("unless", "and", "or", ">"):
            raise BadExpression(f"{sign} of a bare counter")
        return vector

    def _single(self) -> Gives:
        kind, text = self._next()
        if text == "(":
            inner = self._binary(0)
            self._wants(")")
            return inner
        if kind == "number":
            return Gives("scalar")
        if kind != "name":
            raise BadExpression(f"an expression was expected, not {text!r}")
        if text in _AGGREGATES:
            return self._aggregate(text)
        if self._sees("("):
            return self._call(text)
        return self._selector(text)

    def _aggregate(self, name: str) -> Gives:
        by = self._names() if self._takes("by") else frozenset()
        (inner,) = self._arguments()
        if inner.type != "vector":
            raise BadExpression(f"{name} takes a vector")
        if not by <= inner.labels:
            raise BadExpression(f"{name} by {sorted(by - inner.labels)}, which its series don't have")
        return Gives("vector", by, "gauge" if name == "count" else inner.kind)

    def _call(self, name: str) -> Gives:
        if name not in _FUNCTIONS:
            raise BadExpression(f"no function {name} is known")
        wanted, result = _FUNCTIONS[name]
        given = self._arguments()
        if tuple(one.type for one in given) != wanted:
            raise BadExpression(f"{name} takes {wanted}")
        if name in ("vector", "scalar"):
            return Gives(result)
        last = given[-1]
        if name == "histogram_quantile":
            if "le" not in last.labels or last.kind != "gauge":
                raise BadExpression("histogram_quantile takes rates of buckets by le")
            return Gives(result, last.labels - {"le"})
        if last.kind == "gauge":
            raise BadExpression(f"{name} of a gauge")
        return Gives(result, last.labels)

    def _selector(self, name: str) -> Gives:
        if name not in self.known:
            raise BadExpression(f"no metric {name} is exported")
        series = self.known[name]
        labels = series.labels | TARGET
        self.names.add(name)
        if self._takes("{"):
            while not self._takes("}"):
                self._matcher(series, labels)
                if not self._takes(","):
                    self._wants("}")
                    break
        is_range = self._takes("[")
        if is_range:
            self._wants("duration")
            self._wants("]")
        if self._takes("offset"):
            self._wants("duration")
        return Gives("matrix" if is_range else "vector", labels, series.kind)

    def _matcher(self, series: SeriesOf, labels: frozenset[str]) -> None:
        label, sign, value = self._wants("name"), self._next()[1], self._wants("string")[1:-1]
        if label not in labels or sign not in ("=", "!=", "=~", "!~"):
            raise BadExpression(f"no series has {label}{sign}{value!r}")
        if label == "le" and value not in series.bounds:
            raise BadExpression(f"no bucket ends at {value}")
        if label not in TARGET | {"le"}:
            self.values |= {(label, one) for one in (value.split("|") if "~" in sign else [value])}

    def _names(self) -> frozenset[str]:
        found = set()
        self._wants("(")
        while not self._takes(")"):
            found.add(self._wants("name"))
            if not self._takes(","):
                self._wants(")")
                break
        return frozenset(found)

    def _arguments(self) -> list[Gives]:
        self._wants("(")
        found = [self._binary(0)]
        while self._takes(","):
            found.append(self._binary(0))
        self._wants(")")
        return found
