"""RST-10: what calls of common agents did to files."""

from __future__ import annotations

from typing import Any

import pytest
from tests.calls import happened, numbered, used

from perdure.transcript.tool_calls.actions import AnsweredCall
from perdure.transcript.tool_calls.files import FileAction, KnownLines, file_actions
from perdure.transcript.tool_calls.refusals import DENIED

pytestmark = pytest.mark.unit

TEXT = "import os\n\nprint(os.name)"
PATCH = """*** Begin Patch
*** Add File: /a/new.py
+x = 1
*** Update File: /a/old.py
@@ def f
 keep
-gone
+come
*** Delete File: /a/dead.py
*** End Patch"""
SEARCH = "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n"
ROO = "<<<<<<< SEARCH\n:start_line:3\n-------\nold\n=======\nnew\n>>>>>>> REPLACE"
SWE = "[File: /t/a.py (3 lines total)]\r\n1:import os\r\n2:\r\n3:print(os.name)\r\n(Open file: /t/a.py)\n(Current directory: /t)\nbash-$"  # noqa: E501
CODEX = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 0\nOriginal token count: 9\nOutput:\n"
MINI = "<returncode>0</returncode>\n<output>\nimport os\n\nprint(os.name)\n</output>"


def deeds(name: str, arguments: dict[str, Any], result: Any = "ok", *, is_error: bool = False) -> list[FileAction]:
    (one,) = happened(used(name, arguments, result, is_error=is_error))
    assert isinstance(one, AnsweredCall)
    return file_actions(one)


READS = [
    ("Read", {"file_path": "/a.py"}, numbered(TEXT), "/a.py", True),
    (
        "Read",
        {"file_path": "/a.py"},
        numbered(TEXT, sign="\t") + "\n\n<system-reminder>\nx\n</system-reminder>",
        "/a.py",
        True,
    ),
    ("Read", {"file_path": "/a.py", "offset": 5, "limit": 3}, numbered(TEXT, 5), "/a.py", False),
    ("mcp__fs__read_file", {"path": "/a.py"}, TEXT, "/a.py", True),
    (
        "read_file",
        {"path": "a.py"},
        '<file><path>a.py</path>\n<content lines="1-3">\n1 | import os\n2 | \n3 | print(os.name)\n</content></file>',
        "a.py",
        True,
    ),
    ("read", {"filePath": "/a.py"}, "<file>\n00001| import os\n00002| \n00003| print(os.name)\n</file>", "/a.py", True),
    (
        "str_replace_editor",
        {"command": "view", "path": "/a.py"},
        "Here's the result of running `cat -n` on /a.py:\n" + numbered(TEXT, sign="\t"),
        "/a.py",
        True,
    ),
    (
        "str_replace_editor",
        {"command": "view", "path": "/a.py", "view_range": [4, 6]},
        numbered(TEXT, 4, "\t"),
        "/a.py",
        False,
    ),
    ("open", {"path": "a.py"}, SWE, "/t/a.py", True),
    ("exec_command", {"cmd": "cat a.py", "workdir": "/w"}, CODEX + TEXT + "\n", "/w/a.py", True),
    ("exec_command", {"cmd": "sed -n '5,7p' a.py", "workdir": "/w"}, CODEX + TEXT + "\n", "/w/a.py", False),
    ("shell", {"command": ["bash", "-lc", "cat /a.py"]}, TEXT, "/a.py", True),
    ("Bash", {"command": "cd /w && cat a.py"}, MINI, "/w/a.py", True),
    ("bash", {"command": "nl -ba a.py | sed -n '2,4p'"}, numbered(TEXT, 2, "\t"), "a.py", False),
    ("Bash", {"command": "head -n 3 /a.py"}, TEXT, "/a.py", False),
]


@pytest.mark.parametrize(("name", "arguments", "result", "path", "is_whole"), READS)
def test_reads(name: str, arguments: dict[str, Any], result: str, path: str, is_whole: bool) -> None:
    (deed,) = deeds(name, arguments, result)
    assert (deed.path, deed.how, deed.is_whole) == (path, "read", is_whole)
    known = deed.on(None)
    assert known is not None and "\n".join(known.runs[0].lines) == TEXT


CHANGES = [
    ("Write", {"file_path": "/a", "content": "new\n"}, "new\n"),
    ("write_to_file", {"path": "/a", "content": "new\n"}, "new\n"),
    ("create_file", {"path": "/a", "file_text": "new\n"}, "new\n"),
    ("str_replace_editor", {"command": "create", "path": "/a", "file_text": "new\n"}, "new\n"),
    ("Edit", {"file_path": "/a", "old_string": "old", "new_string": "new"}, "new\nend\n"),
    ("replace", {"file_path": "/a", "old_string": "old", "new_string": "new"}, "new\nend\n"),
    (
        "MultiEdit",
        {
            "file_path": "/a",
            "edits": [{"old_string": "old", "new_string": "new"}, {"old_string": "end", "new_string": "END"}],
        },
        "new\nEND\n",
    ),
    (
        "str_replace_based_edit_tool",
        {"command": "str_replace", "path": "/a", "old_str": "old", "new_str": "new"},
        "new\nend\n",
    ),
    ("replace_in_file", {"path": "/a", "diff": SEARCH}, "new\nend\n"),
    ("apply_diff", {"path": "/a", "diff": ROO}, "new\nend\n"),
    (
        "apply_patch",
        {"input": "*** Begin Patch\n*** Update File: /a\n@@\n-old\n+new\n end\n*** End Patch"},
        "new\nend\n",
    ),
    (
        "exec_command",
        {"cmd": "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: /a\n@@\n-old\n+new\n*** End Patch\nEOF"},
        "new\nend\n",
    ),
    ("Bash", {"command": "cat > /a <<'EOF'\nnew\nEOF"}, "new\n"),
    ("NotebookEdit", {"notebook_path": "/a", "new_source": "x"}, None),
    ("Bash", {"command": "sed -i 's/old/new/' /a"}, None),
    ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": 1, "new_str": "x"}, None),
    ("Bash", {"command": "cat > /a <<EOF\n$HOME\nEOF"}, None),
]


@pytest.mark.parametrize(("name", "arguments", "text"), CHANGES)
def test_changes(name: str, arguments: dict[str, Any], text: str | None) -> None:
    (deed,) = deeds(name, arguments)
    assert deed.path == "/a" and deed.how in ("edited", "written")
    known = deed.on(KnownLines.whole("old\nend\n"))
    assert known == (None if text is None else KnownLines.whole(text))


def test_a_patch_of_several_files() -> None:
    found = deeds("apply_patch", {"input": PATCH})
    assert [(deed.path, deed.how) for deed in found] == [
        ("/a/new.py", "written"),
        ("/a/old.py", "edited"),
        ("/a/dead.py", "deleted"),
    ]
    assert found[0].text == "x = 1\n"
    assert found[1].on(KnownLines.whole("keep\ngone\n")) == KnownLines.whole("keep\ncome\n")


NOTHING = [
    ("Edit", {"file_path": "/a", "old_string": "old", "new_string": "new"}, DENIED + ".", True),
    (
        "Edit",
        {"file_path": "/a", "old_string": "a", "new_string": "b"},
        "<tool_use_error>not read</tool_use_error>",
        False,
    ),
    ("apply_patch", {"input": PATCH}, "apply_patch verification failed: no lines", False),
    (
        "exec_command",
        {"cmd": "cat /a"},
        "Wall time: 1 s\nProcess exited with code 1\nOutput:\ncat: /a: No such file",
        False,
    ),
    ("Bash", {"command": "cat /a | grep x"}, "x", False),
    ("Bash", {"command": "cat $FILE"}, "x", False),
    ("Bash", {"command": "for f in *; do cat $f; done"}, "x", False),
    ("Bash", {"command": "npm run dev", "run_in_background": True}, "x", False),
    ("Bash", {"command": "node -e 'const f = (x) => x.type; a > b'"}, "x", False),
    ("get_user_details", {"user_id": "mia"}, "{}", False),
    ("Read", {"file_path": 7}, "x", False),
    ("Write", {"content": "no path"}, "x", False),
]


@pytest.mark.parametrize(("name", "arguments", "result", "is_error"), NOTHING)
def test_what_did_nothing_certain(name: str, arguments: dict[str, Any], result: str, is_error: bool) -> None:
    assert deeds(name, arguments, result, is_error=is_error) == []


def test_a_window_of_swe_agent_after_an_edit() -> None:
    (deed,) = deeds("edit", {"search": "a", "replace": "b"}, "Text replaced.\r\n" + SWE)
    assert (deed.path, deed.how) == ("/t/a.py", "edited")
    assert deed.on(KnownLines.whole("a\n")) == KnownLines.whole(TEXT + "\n")


def test_a_cut_output_is_no_content() -> None:
    (deed,) = deeds("Bash", {"command": "cat /a"}, "x\n…900 tokens truncated…\ny")
    assert deed.on(None) is None or not deed.runs
