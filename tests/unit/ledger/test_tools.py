"""CMP-5, RST-10: what calls of common agents do, by name patterns; users add their own."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.transcript.tool_calls.actions import ActionKind, ToolTable

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Read", "read"), ("read_file", "read"), ("view_file", "read"), ("open", "read"),
        ("Edit", "edit"), ("MultiEdit", "edit"), ("apply_patch", "edit"), ("str_replace_editor", "edit"),
        ("replace_in_file", "edit"), ("apply_diff", "edit"), ("edit_file", "edit"), ("NotebookEdit", "edit"),
        ("Write", "write"), ("write_to_file", "write"), ("create_file", "write"),
        ("Bash", "run"), ("exec_command", "run"), ("execute_bash", "run"), ("run_shell_command", "run"),
        ("shell", "run"), ("execute_command", "run"), ("local_shell", "run"),
        ("Grep", "search"), ("Glob", "search"), ("find_file", "search"), ("search_files", "search"),
        ("TodoWrite", "todo"), ("update_plan", "todo"), ("TaskCreate", "todo"), ("TaskUpdate", "todo"),
        ("task_tracker", "todo"), ("write_todos", "todo"), ("update_todo_list", "todo"),
        ("Task", "agent"), ("Agent", "agent"), ("spawn_agent", "agent"),
        ("BashOutput", "input"), ("write_stdin", "input"), ("KillBash", "stop"), ("Skill", "skill"),
        ("ToolSearch", "tools"), ("ExitPlanMode", "plan"), ("AskUserQuestion", "ask"), ("apply-diff", "edit"),
        ("WebFetch", "web"), ("web_search", "web"),
        ("mcp__files__read_file", "read"), ("something_else", "other"),
    ],
)  # fmt: skip
def test_actions_by_name(name: str, kind: ActionKind) -> None:
    assert ToolTable().kind(name) == kind


@pytest.mark.parametrize(
    ("name", "given", "touched"),
    [
        ("Read", {"file_path": "/a/b.py", "offset": 10, "limit": 31}, [("/a/b.py", "read", (10, 40))]),
        ("str_replace_editor", {"command": "view", "path": "/a.py", "view_range": [1, 9]}, [("/a.py", "read", (1, 9))]),
        ("str_replace_editor", {"command": "create", "path": "/a.py", "file_text": "x"}, [("/a.py", "write", None)]),
        ("str_replace_editor", {"command": "str_replace", "path": "/a.py", "old_str": "x"}, [("/a.py", "edit", None)]),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: b.md\n*** End Patch"},
            [("src/a.py", "edit", None), ("b.md", "edit", None)],
        ),
        (
            "Bash",
            {"command": "sed -i 's/a/b/' src/x.go && cat y.md"},
            [("src/x.go", "edit", None), ("y.md", "read", None)],
        ),
        ("Bash", {"command": "cat > run.py <<'EOF'\nopen('z.py') > 3\nEOF\npython run.py"}, [("run.py", "edit", None)]),
        ("Bash", {"command": "make 2>&1 > /dev/null"}, []),
        ("shell", {"command": ["bash", "-lc", "echo hi > out.txt"]}, [("out.txt", "edit", None)]),
    ],
)
def test_what_a_call_touches(name: str, given: dict[str, Any], touched: list[tuple[str, str, Any]]) -> None:
    assert [(file.path, file.kind, file.span) for file in ToolTable().action(name, given).files] == touched


def test_users_register_their_tools() -> None:
    """RST-10: by pattern, in code or in the setting `ledger_tools`."""
    own = ToolTable().with_pattern("deploy_.*", "run")
    assert own.kind("deploy_site") == "run" and ToolTable().kind("deploy_site") == "other"
    assert ToolTable.of(["deploy_.*=run", "Read=other", "x=nonsense"]).kind("deploy_all") == "run"
    assert ToolTable.of(["Read=other"]).kind("Read") == "other"
