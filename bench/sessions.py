"""Which earlier work matters to a task, in the history of a repository: a file for `perdure bench retrieval` (MEM-15).

    python bench/sessions.py REPOSITORY OUT.json [--sessions 400] [--questions 80]

Commits of one author in a row, at most three hours apart, are a session. The first line of its first commit is what is
asked before it; the evidence are those of the 60 sessions before it that changed a file which it changes, but for files
that a quarter of them change.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LOOKED_AT = 60
LEAST_BEFORE = 30
APART_SECONDS = 3 * 3600
MOST_COMMITS = 8
DIFF_CHARS = 12_000
COMMON_SHARE = 0.25
SHOWN_FILES = 60


@dataclass
class Work:
    """Commits in a row: hash, first line and the rest of each."""

    author: str
    began: int
    ended: int
    commits: list[tuple[str, str, str]] = field(default_factory=list)


def git(repository: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def work_of(repository: Path, most: int) -> list[Work]:
    found: list[Work] = []
    log = git(repository, "log", "-3000", "--no-merges", "--pretty=%H%x1f%at%x1f%ae%x1f%s%x1f%b%x1e")
    for one in reversed([one.strip("\n").split("\x1f") for one in log.split("\x1e") if "\x1f" in one]):
        digest, at, author, subject, body = one[0], int(one[1]), *one[2:5]
        last = found[-1] if found else None
        is_more = last is not None and last.author == author and at - last.ended < APART_SECONDS
        if last is None or not is_more or len(last.commits) == MOST_COMMITS:
            found.append(last := Work(author, at, at))
        last.commits.append((digest, subject, body))
        last.ended = at
    return found[-most:]


def item_of(repository: Path, number: int, work: Work) -> tuple[dict[str, Any], set[str]]:
    files: Counter[str] = Counter()
    said = []
    for digest, subject, body in work.commits:
        files.update(name for name in git(repository, "show", "--pretty=", "--name-only", digest).split("\n") if name)
        said += [subject, body, git(repository, "show", "--pretty=", "-U2", digest)[:DIFF_CHARS]]
    item = {
        "id": f"s{number}",
        "name": work.commits[0][1],
        "description": "\n".join(subject for _, subject, _ in work.commits[1:]),
        "keywords": list(files)[:SHOWN_FILES],
        "text": "\n".join(said),
        "time": datetime.fromtimestamp(work.began, UTC).isoformat(),
    }
    return item, set(files)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sessions out of the history of a repository.")
    parser.add_argument("repository", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sessions", type=int, default=400)
    parser.add_argument("--questions", type=int, default=80)
    args = parser.parse_args()
    work = work_of(args.repository, args.sessions)
    items, files = zip(*(item_of(args.repository, n, one) for n, one in enumerate(work)), strict=True)
    asked: list[tuple[int, list[int]]] = []
    for number in range(LEAST_BEFORE, len(work)):
        before = range(max(0, number - LOOKED_AT), number)
        changed = Counter(name for n in before for name in files[n] & files[number])
        telling = {name for name, count in changed.items() if count < COMMON_SHARE * len(before)}
        if evidence := [n for n in before if files[n] & telling]:
            asked.append((number, evidence))
    random.Random(1).shuffle(asked)
    corpus, queries = [], []
    for number, evidence in asked[: args.questions]:
        group = f"q{number}"
        for n in range(max(0, number - LOOKED_AT), number):
            corpus.append({**items[n], "id": f"{group}/s{n}", "group": group, "order": n})
        prompt = re.sub(r"\(?#\d+\)?", "", work[number].commits[0][1])
        queries.append({"id": group, "query": prompt, "group": group, "evidence": [f"{group}/s{n}" for n in evidence]})
    args.out.write_text(json.dumps({"kind": "sessions", "corpus": corpus, "queries": queries}))
    print(f"{args.out}: {len(work):,} sessions, {len(queries):,} questions")


if __name__ == "__main__":
    main()
