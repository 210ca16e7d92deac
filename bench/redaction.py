"""The secrets scanner: recall by family, false positives, and speed (SEC-5).

    python -m bench.redaction [FILE-OR-FOLDER …] [--samples 200] [--seed 7]

Recall: made-up secrets of every family, in texts of several shapes (`bench/_secrets.py`). False positives: the
share of lines with a finding, in harmless made-up lines, and in the files given; look at what it shows of those. Speed:
over the same files, else over made-up text. In seconds of the processor; the bar is 20 MB/s.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from random import Random

from bench import _secrets as made

from perdure.memory.trust.secrets import find_secrets

LEAST_RECALL, MOST_FALSE, LEAST_MB = 0.98, 0.005, 20.0


def recall(samples: int, chance: Random) -> float:
    found, right = Counter[str](), Counter[str]()
    for family in made.FAMILIES:
        for _ in range(samples):
            text, value = made.sample(family, chance)
            start = text.index(value)
            hits = [f for f in find_secrets(text) if f.start <= start and f.end >= start + len(value)]
            found[family] += bool(hits)
            right[family] += any(f.family == family for f in hits)
    for family in sorted(made.FAMILIES, key=lambda name: found[name]):
        if found[family] < samples or right[family] < samples:
            print(f"  {family:28} found {found[family] / samples:7.1%}  as this family {right[family] / samples:7.1%}")
    total = found.total() / (samples * len(made.FAMILIES))
    print(f"recall {total:.2%} over {len(made.FAMILIES)} families, {samples} each (bar {LEAST_RECALL:.0%})")
    return total


def obfuscated(samples: int, chance: Random) -> float:
    """The share that is found whole where something splits a secret, or stands in its place; by the way it does."""
    found, tried = Counter[str](), Counter[str]()
    for way in made.WAYS:
        for family in made.MARKED:
            for _ in range(max(1, samples // 20)):
                one = made.obfuscated(family, chance, way)
                start, end = one.text.index(one.form), one.text.index(one.form) + len(one.form)
                tried[way] += 1
                found[way] += any(hit.start <= start and hit.end >= end for hit in find_secrets(one.text))
    for way in made.WAYS:
        print(f"  {way:28} found {found[way] / tried[way]:7.1%}")
    total = found.total() / tried.total()
    print(f"split, escaped or glued: {total:.2%} over {len(made.MARKED)} families with a mark of their own")
    return total


def false_positives(lines: int, chance: Random) -> float:
    flagged = 0
    for _ in range(lines):
        line = made.harmless(chance)
        if hits := find_secrets(line):
            flagged += 1
            if flagged <= 5:
                print(f"  {hits[0].family}: {line[:100]}")
    print(f"false positives {flagged / lines:.2%} of {lines:,} harmless lines (bar {MOST_FALSE:.1%})")
    return flagged / lines


def over_files(paths: list[Path], *, show: int) -> tuple[float, float]:
    texts = [path.read_text(errors="replace") for path in paths]
    size = sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
    before = time.process_time()
    findings = [find_secrets(text) for text in texts]
    seconds = time.process_time() - before
    lines = sum(text.count("\n") + 1 for text in texts)
    flagged = sum(len({f.line for f in found}) for found in findings)
    for path, found in [(p, f) for p, f in zip(paths, findings, strict=True) if f][:show]:
        print(f"  {path.name}: " + ", ".join(f"{f.family} in line {f.line}" for f in found[:5]))
    print(f"flagged {flagged:,} of {lines:,} lines ({flagged / lines:.3%}) in {len(paths):,} files, {size:.1f} MB")
    return flagged / lines, size / seconds


def speed(chance: Random) -> float:
    text = "\n".join(made.harmless(chance) for _ in range(60_000))
    before = time.process_time()
    find_secrets(text)
    return len(text) / 1e6 / (time.process_time() - before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    chance = Random(options.seed)
    find_secrets("warm")
    total = recall(options.samples, chance)
    obfuscated(options.samples, chance)
    false = false_positives(20_000, chance)
    given = [f for p in options.paths for f in (sorted(p.rglob("*")) if p.is_dir() else [p]) if f.is_file()]
    rate, among = 0.0, speed(chance)
    print(f"speed {among:.0f} MB/s where every line is a near miss")
    if given:
        rate, among = over_files(given, show=10)
        print(f"speed {among:.0f} MB/s over the files (bar {LEAST_MB:.0f})")
    return 0 if total >= LEAST_RECALL and max(false, rate) <= MOST_FALSE and (among >= LEAST_MB or not given) else 1


if __name__ == "__main__":
    raise SystemExit(main())
