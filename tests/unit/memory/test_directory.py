"""MEM-1, MEM-13: where memories stand, and which agent may do what with them."""

from __future__ import annotations

import pytest

from perdure.errors import BadSetting
from perdure.memory.places import (
    MAIN_RIGHTS,
    MemoryRights,
    MemoryRoots,
    agent_directory,
    allowed_directories,
    is_memory,
    project_directory,
    user_directory,
)

pytestmark = pytest.mark.unit
GROUNDS = MemoryRoots(
    home="/h/.perdure", kept="/h/.perdure/projects/-srv-app_0/memory", root="/srv/app", user_home="/h"
)


def test_places_of_a_project_a_user_and_agents() -> None:
    assert project_directory(GROUNDS) == "/h/.perdure/projects/-srv-app_0/memory"
    assert user_directory(GROUNDS) == "/h/.perdure/memory"
    assert agent_directory(GROUNDS, "reviewer", "user") == "/h/.perdure/agent-memory/reviewer"
    assert agent_directory(GROUNDS, "reviewer", "project") == "/srv/app/.perdure/agent-memory/reviewer"
    assert agent_directory(GROUNDS, "reviewer", "local") == "/srv/app/.perdure/agent-memory-local/reviewer"


@pytest.mark.parametrize(("given", "path"), [("~/m", "/h/m"), ("/x/m", "/x/m"), ("~", "/h")])
def test_a_setting_names_another_place(given: str, path: str) -> None:
    grounds = MemoryRoots(home=GROUNDS.home, kept="/h/k", root=GROUNDS.root, user_home="/h", directory=given)
    assert project_directory(grounds) == path


def test_a_relative_place_is_refused() -> None:
    with pytest.raises(BadSetting, match="absolute"):
        project_directory(MemoryRoots(home="/h", kept="/h/k", root="/r", user_home="/h", directory="here"))


@pytest.mark.parametrize("agent", ["../x", "a/b", "", ".hidden", "a..b", "x" * 65])
def test_an_agent_cannot_be_named_out_of_its_folder(agent: str) -> None:
    with pytest.raises(BadSetting, match="agent"):
        agent_directory(GROUNDS, agent, "user")


@pytest.mark.parametrize(
    ("file", "yes"),
    [
        ("a.md", True),
        ("team/a.md", True),
        ("MEMORY.md", False),
        ("team/MEMORY.md", False),
        (".x/a.md", False),
        ("a.txt", False),
    ],
)
def test_what_is_a_memory(file: str, yes: bool) -> None:
    assert is_memory(file) is yes


def test_rights_of_an_agent_reach_its_own_folders_and_what_it_was_given() -> None:
    among = allowed_directories(
        GROUNDS, MemoryRights(agent="reviewer", scopes=("user", "local"), project="read", user="none")
    )
    assert [(one.path, one.right, one.what) for one in among] == [
        ("/h/.perdure/agent-memory/reviewer", "write", "agent"),
        ("/srv/app/.perdure/agent-memory-local/reviewer", "write", "agent"),
        ("/h/.perdure/projects/-srv-app_0/memory", "read", "project"),
    ]


def test_the_main_agent_may_write_what_is_the_projects_and_the_users() -> None:
    assert {one.path: one.right for one in allowed_directories(GROUNDS, MAIN_RIGHTS)} == {
        "/h/.perdure/projects/-srv-app_0/memory": "write",
        "/h/.perdure/memory": "write",
    }
