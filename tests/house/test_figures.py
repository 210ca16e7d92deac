"""The script behind `make house` runs and prints figures (issue H)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.house

SCRIPT = Path(__file__).parents[2] / "bench" / "house.py"


def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("house_figures", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@pytest.mark.nightly
@pytest.mark.timeout(600)  # a process that does everything twice under a profile hook: slow where others work as well
def test_every_kind_of_work_is_measured_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["figures"]["source files"] > 0 < found["figures"]["code lines"]
    for work, counts in found["work"].items():
        entered: dict[str, list[str]] = found["entered"][work]
        assert counts["files"] == len(entered) > 5, work
        assert counts["functions"] == sum(map(len, entered.values())), work
        assert not any(path.startswith("testing/") for path in entered), work
    assert any(path.startswith("gateway/") for path in found["entered"]["gateway"])
    assert any(path.startswith("cli/") for path in found["entered"]["run"])

    before = json.loads(done.stdout)
    before["work"]["turn"]["files"] = 987
    house, files = script(monkeypatch), str(found["work"]["turn"]["files"])
    rows = [row.split() for row in house.table(found, before).splitlines()]
    assert ["turn,", "files", "987", files, "20"] in rows
    assert f"turn: {files} files" in house.listing(found)


def test_what_is_counted_in_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "made"
    (root / "room").mkdir(parents=True)
    for name, text in SOURCES.items():
        (root / name).write_text(text)
    figures, names = script(monkeypatch).House.read(root).figures()
    assert names["repeated class names"] == {"Place": ["one.py:5", "room/two.py:5"]}
    assert names["repeated module names"] == {"one": ["one.py", "room/one.py"]}
    assert names["modules with one importer"] == {"one.py": ["room/two.py"], "room/two.py": ["room/one.py"]}
    assert names["helpers used once"] == {"room/two.py": ["_once"]}
    assert figures["source files"] == 5 and figures["classes"] == 2 and figures["functions"] == 3
    assert figures["code lines"] == 3 + 8 + 1 and figures["imports, % of code lines"] == round(100 * 2 / 12, 1)


SOURCES = {
    "__init__.py": '"""Nothing but words."""\n',
    "room/__init__.py": "",
    "one.py": '"""A docstring."""\n\n# a comment\n\nclass Place:\n    """Where."""\n\n    text = """two\nlines"""\n',
    "room/one.py": "from made.room.two import Place\n",
    "room/two.py": """from made.one import Place as Other


# a class of the same name
class Place:
    def ask(self):
        return _once() + _twice() + _twice()


def _once():
    return 1


def _twice():
    return 2
""",
}
