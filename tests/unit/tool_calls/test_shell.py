"""RST-10, CMP-5: what a command line does to files, read once for the record and for what comes back behind it."""

from __future__ import annotations

import time

import pytest

from perdure.transcript.tool_calls.shell import Removal, ShellFile, read_shell

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("cat a.py", [ShellFile("/w/a.py", "read", is_all=True)]),
        ("cd src && cat 'a b.py'", [ShellFile("/w/src/a b.py", "read", is_all=True)]),
        ("sed -n '5,7p' a.py", [ShellFile("/w/a.py", "read", is_all=True, first=5, last=7)]),
        ("nl -ba a.py | sed -n '2,4p'", [ShellFile("/w/a.py", "read", is_all=True, is_numbered=True)]),
        ("cat a.py | grep x", [ShellFile("/w/a.py", "read")]),
        ("cat > a.py <<'EOF'\nx = 1\nEOF", [ShellFile("/w/a.py", "written", text="x = 1\n")]),
        ("cat > a.py <<EOF\n$HOME\nEOF", [ShellFile("/w/a.py", "edited")]),
        (
            "mkdir -p d && cat > d/a.py <<'EOF'\nopen('z.py') > 3\nEOF\npython d/a.py > out.log 2>&1",
            [ShellFile("/w/d/a.py", "edited"), ShellFile("/w/out.log", "output")],
        ),
        ("echo hi>out.txt; make 2>err.log 2>&1 >/dev/null", [ShellFile("/w/out.txt", "output")]),
        ("sed -i '' -e 's/a/b.c/' x.go y.go", [ShellFile("/w/x.go", "edited"), ShellFile("/w/y.go", "edited")]),
        ("perl -pi -e 's/a.b/c.d/' q.pl", [ShellFile("/w/q.pl", "edited")]),
        ("sed -n -e 5p a.py", [ShellFile("/w/a.py", "read")]),
        ("echo x | sudo tee -a conf.d/a.conf", [ShellFile("/w/conf.d/a.conf", "output")]),
        ("bash -lc \"cd /q && sed -i 's/x/y/' f.c\"", [ShellFile("/q/f.c", "edited")]),
        ("cd $DIR && sed -i s/x/y/ f.c", [ShellFile("f.c", "edited")]),
        ("node -e 'const f = (x) => x.type; a > b.c'", []),
        ("# don't\nfor f in *.py; do cat $f; done", []),
        ("git commit -m \"$(cat <<'EOF'\nsaved > x.py\nEOF\n)\"", []),
        ("cat <<EOF\nno end > x.py", [ShellFile("/w/x.py", "output")]),  # a shell would read it as text, and say so
    ],
)
def test_files_of_a_command(command: str, files: list[ShellFile]) -> None:
    assert list(read_shell(command, "/w").files) == files


def test_what_a_command_takes_away() -> None:
    """RST-10."""

    def gone(command: str, cwd: str | None = "/w") -> list[Removal]:
        return list(read_shell(command, cwd).removals)

    assert gone("cd src && rm -rf 'a b' \"c.py\"") == [
        Removal("/w/src/a b", "deleted", by="rm"),
        Removal("/w/src/c.py", "deleted", by="rm"),
    ]
    assert gone("mv a.py b.py dir/") == [
        Removal("/w/a.py", "moved", "/w/dir/a.py", "mv"),
        Removal("/w/b.py", "moved", "/w/dir/b.py", "mv"),
    ]
    assert gone("git checkout -- a.py 2>/dev/null") == [Removal("/w/a.py", "undone", by="git checkout")]
    assert gone("git stash && git reset --hard") == [
        Removal("", "undone", by="git stash"),
        Removal("", "undone", by="git reset --hard"),
    ]
    assert gone("rm $FILE; echo rm a.py; grep rm x", None) == []


def test_here_documents_are_what_is_written() -> None:
    """CMP-5: their text gives the names that went into files; nothing in it is a command."""
    read = read_shell("cat <<'A' > a.py && cat <<-B >> b.py\nrm x.py\nA\nrm y.py\n  B\nrm z.py")
    assert read.written == "rm x.py\nrm y.py"
    assert [one.path for one in read.removals] == ["z.py"]


@pytest.mark.parametrize("inside", ['\\"', '"\\', '" \\"'])
def test_a_quote_without_an_end_takes_no_longer_than_another(inside: str) -> None:
    """CMP-3, SPD-1: a history may hold any number of such commands; the files before it are found."""
    command = f"rm /src/a.py; echo {inside * (19_000 // len(inside))}"
    began = time.process_time()
    reading = read_shell(command)
    assert time.process_time() - began < 0.3
    assert [one.path for one in reading.removals] == ["/src/a.py"]
