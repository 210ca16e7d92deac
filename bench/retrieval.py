"""How well memories and turns are found in real data: makes files for `perdure bench retrieval` (QLT-4).

    python bench/retrieval.py DATA OUT

DATA holds `memdirs` (memory directories of public repositories) and `memorybank` (the dialogues of
MemoryBank-SiliconFriend, MIT). Writes memorybank_en.json, memorybank_en_undated.json, memorybank_cn.json and
memdirs.json into OUT. The questions on the directories and the evidence for those of the dialogues are ours, and stand
in tests/recordings/memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OURS = Path(__file__).parents[1] / "tests" / "recordings" / "memory"
LANGUAGES = ("en", "cn")


def dialogues(data: Path, language: str) -> dict[str, Any]:
    """The dialogues of fifteen people with an assistant, a group each; the days are sessions."""
    folder = data / "memorybank" / "eval_data" / language
    people = json.loads((folder / f"memory_bank_{language}.json").read_text(encoding="utf-8"))
    lines = (folder / f"probing_questions_{language}.jsonl").read_text(encoding="utf-8").splitlines()
    asked = [next(iter(json.loads(line).values())) for line in lines if line.strip()]
    evidence = json.loads((OURS / "memorybank_evidence.json").read_text())
    corpus: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    for number, (name, person) in enumerate(people.items()):
        group = str(number)
        for day, pairs in person["history"].items():
            for place, pair in enumerate(pairs):
                for who, field in (("u", "query"), ("a", "response")):
                    corpus.append(
                        {
                            "id": f"{group}:{day[5:]}/{place}{who}",
                            "text": pair[field],
                            "session": f"{group}:{day}",
                            "time": day,
                            "speaker": name.strip() if who == "u" else "AI",
                            "group": group,
                        }
                    )
        for place, text in enumerate(asked[number]):
            found = [f"{group}:{one}" for one in evidence.get(f"{number}.{place}", ())]
            queries.append({"id": f"{number}.{place}", "query": text, "group": group, "evidence": found})
    return {"kind": "turns", "corpus": corpus, "queries": queries}


def without_dates(value: dict[str, Any]) -> dict[str, Any]:
    """The same corpus as one whose turns don't tell when they were said."""
    return {**value, "corpus": [{**item, "time": ""} for item in value["corpus"]]}


def directories(data: Path) -> dict[str, Any]:
    """The memory directories, a group each, with what their files say."""
    from perdure.memory.files import INDEX, topic

    corpus: list[dict[str, Any]] = []
    for folder in sorted((data / "memdirs").iterdir()):
        for path in sorted((folder / "head").glob("*.md")):
            if path.name != INDEX:
                one = topic(path.name, path.read_text(encoding="utf-8"))
                corpus.append(
                    {
                        "id": f"{folder.name}/{one.file}",
                        "group": folder.name,
                        "name": one.name,
                        "description": one.description,
                        "type": one.type or "",
                        "text": one.body,
                    }
                )
    queries = [
        {"query": q["query"], "group": q["dir"], "evidence": [f"{q['dir']}/{file}" for file in q["files"]]}
        for q in json.loads((OURS / "queries.json").read_text())
    ]
    return {"kind": "memories", "corpus": corpus, "queries": queries}


def main(data: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    made = {f"memorybank_{language}": dialogues(data, language) for language in LANGUAGES}
    made["memorybank_en_undated"] = without_dates(made["memorybank_en"])
    made["memdirs"] = directories(data)
    for name, value in made.items():
        path = out / f"{name}.json"
        path.write_text(json.dumps(value, ensure_ascii=False))
        print(f"{path}: {len(value['corpus']):,} items, {len(value['queries']):,} questions")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
