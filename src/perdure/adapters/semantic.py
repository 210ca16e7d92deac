"""How near texts are in meaning, by static embeddings of their words that a package brings along (MEM-15).

The vectors and the tokenizer are read out of the installed package, and none of its code is run: there is no cache, no
download and no network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from perdure.adapters.extras import install
from perdure.text.words import STOP_WORDS, plain_words

PACKAGE: Final = "wordllama"
_VECTORS: Final = "wordllama/weights/l2_supercat_256.safetensors"
_TOKENS: Final = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_SPECIAL: Final = 3  # the first tokens of the vocabulary, which are no text
_HEADER_BYTES: Final = 1 << 20
_WORDS: Final = 200  # of a text


class SemanticState(NamedTuple):
    """Whether meaning can be compared here, and with what or why not, in a line."""

    is_there: bool
    said: str


class _Unusable(Exception):
    """The package is missing, or isn't as it is known."""


class _Tensor(msgspec.Struct):
    dtype: str
    shape: tuple[int, int]
    data_offsets: tuple[int, int]


@dataclass(frozen=True, slots=True)
class StaticVectors:
    """The vector of each token, and the tokens of a text."""

    rows: Any
    tokens: Any
    np: Any

    def of(self, texts: Iterable[str]) -> Any:
        """A vector of length 1 for each text, the mean of its words but for those that say nothing; else of zeros."""
        np = self.np
        words = (plain_words(text) for text in texts)
        said = [" ".join([word for word in some if word not in STOP_WORDS][:_WORDS]) for some in words]
        found = np.zeros((len(said), self.rows.shape[1]), dtype=np.float32)
        for number, one in enumerate(self.tokens.encode_batch(said, add_special_tokens=False)):
            ids = [i for i in one.ids if _SPECIAL <= i < len(self.rows)] if said[number] else []
            if ids:
                mean = self.rows[ids].astype(np.float32).mean(axis=0)
                found[number] = mean / (np.linalg.norm(mean) or 1.0)
        return found


@dataclass(slots=True)
class SemanticIndex:
    """`ports.MeaningIndex`. A text is taken in when somebody first asks after it was put."""

    vectors: StaticVectors
    _texts: dict[str, str] = field(default_factory=dict)  # that are not yet taken in
    _at: dict[str, int] = field(default_factory=dict)
    _rows: Any = None

    def put(self, key: str, text: str) -> None:
        """A text, in place of what its key had."""
        self._texts[key] = text

    def drop(self, key: str) -> None:
        """Forget a text."""
        self._texts.pop(key, None)
        self._at.pop(key, None)

    def near(self, query: str) -> Mapping[str, float]:
        """How near each text is to a question, as a cosine; nothing where the question says nothing."""
        np = self.vectors.np
        if self._texts:
            kept = [key for key in self._at if key not in self._texts]
            parts = [self._rows[[self._at[key] for key in kept]]] if kept else []
            self._rows = np.concatenate([*parts, self.vectors.of(self._texts.values())])
            self._at = {key: n for n, key in enumerate((*kept, *self._texts))}
            self._texts = {}
        asked = self.vectors.of([query])[0]
        if not self._at or not asked.any():
            return {}
        found = self._rows @ asked
        return {key: float(found[at]) for key, at in self._at.items()}


def semantic_index() -> SemanticIndex | None:
    """An empty index; None where there is nothing to compare meaning with."""
    try:
        return SemanticIndex(_vectors())
    except _Unusable:
        return None


def semantic_state() -> SemanticState:
    """Whether there is anything, for people."""
    try:
        found = _vectors()
    except _Unusable as e:
        return SemanticState(False, str(e))
    return SemanticState(True, f"{PACKAGE}, {found.rows.shape[0]:,} tokens of {found.rows.shape[1]} numbers")


def _vectors() -> StaticVectors:
    found = _loaded()
    if isinstance(found, str):
        raise _Unusable(found)
    return found


@lru_cache(maxsize=1)
def _loaded() -> StaticVectors | str:
    """The vectors of the package, or why there are none."""
    from importlib.metadata import PackageNotFoundError, distribution

    missing = f"not installed: {install('semantic')}"
    try:
        package = distribution(PACKAGE)
        import numpy as np
        from tokenizers import Tokenizer
    except (ImportError, PackageNotFoundError):
        return missing
    try:
        rows = _rows(Path(str(package.locate_file(_VECTORS))), np)
        tokens = Tokenizer.from_file(str(package.locate_file(_TOKENS)))
        tokens.no_padding()
        tokens.no_truncation()
    except Exception as e:  # of files that aren't those that are known, whatever a reader of them raises
        return f"{PACKAGE} {package.version} can't be read: {str(e).splitlines()[0] if str(e) else type(e).__name__}"
    return StaticVectors(rows, tokens, np)


def _rows(path: Path, np: Any) -> Any:
    """The one matrix in a file of safetensors, mapped and not read."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 0 < size <= _HEADER_BYTES:
            raise ValueError(f"{path.name} has no header")
        header = msgspec.json.decode(file.read(size))
    tensor = msgspec.convert(header["embedding.weight"], _Tensor)
    count, width = tensor.shape
    if tensor.dtype != "F16" or tensor.data_offsets != (0, 2 * count * width) or not count * width:
        raise ValueError(f"{path.name} holds another kind of vectors")
    return np.memmap(path, dtype=np.float16, mode="r", offset=8 + size, shape=(count, width))
