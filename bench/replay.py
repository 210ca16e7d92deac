"""What a replay costs, with the notes of every session and without (CLI-2, SM-7).

    python bench/replay.py FOLDER...

Prints CPU seconds of replaying all recordings in some folders, the compactions by strategy, updates of notes, and
requests that broke a rule; then the same with a stand-in for a model that writes the records, in a window of 60,000
tokens, so that most sessions are compacted.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio

from perdure.adapters.logs import find_logs
from perdure.context.models import model_spec
from perdure.errors import PerdureError
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import replay_recording
from perdure.logs.detect import read_recordings
from perdure.ports.session import Model
from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules, ScriptedModel

SUMMARY = "<analysis>what happened</analysis><summary>1. Primary request: it is in the ledger below.</summary>"


def measured(name: str, files: Sequence[Path], settings: Settings, *, asks: bool = False) -> None:
    """Replay everything once, and print a line."""
    strategies: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    started = time.process_time()
    for path in files:
        try:
            recordings = read_recordings(path.read_bytes(), path.name)
        except PerdureError:
            continue
        for recording in recordings:
            models: tuple[Model, ...] = (stand_in(recording.model or "another"),) if asks else ()
            result = anyio.run(replay_recording, recording, path.name, ReplayOptions(settings=settings), models)
            strategies.update(one["strategy"] for one in result["compactions"])
            counts["turns"] += result["turns"]
            counts["updates"] += result["notes"]["updates"]
            counts["invalid"] += result["invalid_requests"]
            if (asked := result["summarizer"]) is not None:
                counts["asked"] += asked["requests"]
                counts["asked invalid"] += asked["invalid"]
    spent = time.process_time() - started
    told = ", ".join(f"{key} {value:,}" for key, value in (*counts.items(), *sorted(strategies.items())))
    print(f"{name:<28}{spent:6.1f} s CPU   {told}")


def stand_in(name: str) -> ScriptedModel:
    """A model that writes a record whenever it is asked."""
    rules = ModelRules(window_tokens=10_000_000, max_output_tokens=10**9, allow_unknown=True)
    upstream = FakeUpstream(rules=rules, binding="error" if model_spec(name).thinking_is_bound else "off")
    return ScriptedModel([SUMMARY] * 200, upstream=upstream, id=name, window_tokens=60_000)


def main() -> None:
    files = find_logs([Path(name) for name in sys.argv[1:]]).paths
    if not files:
        sys.exit("which recordings? python bench/replay.py FOLDER...")
    measured("without notes", files, Settings(notes=False))
    measured("with notes", files, Settings())
    measured("a model, window 60k", files, Settings(window_tokens=60_000, notes=False), asks=True)
    measured("notes, window 60k", files, Settings(window_tokens=60_000))


if __name__ == "__main__":
    main()
