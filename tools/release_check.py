"""Builds a release and tries it as those who install it do (OPS-1).

    python -m tools.release_check [--build-only | --python 3.12 ... | --release [--without 3.14 ...]]

(make release-check, make dist)

1. Wheel and sdist of the last commit are built twice, in different folders, at different times, with other umasks, time
   zones and hash seeds, and a third time from the sdist: all the same bytes (SOURCE_DATE_EPOCH is the commit's time).
2. What is in them: each file that the package has in the repository and nothing else, no folder of this machine, no
   secret; `twine check --strict` and `check-wheel-contents` on the metadata.
3. For each interpreter of a declared version that is found here: the wheel alone, installed by that interpreter's own
   pip, and the wheel with `[all]` by constraints.txt; each runs `tools/smoke.py` from an empty folder, cut off from the
   network where the machine allows that, and mypy checks a consumer against it.
4. Every declared version, on each system: all of `[all]` has wheels (`uv pip compile --only-binary :all:`).
5. Beside them in dist/: an SBOM of what `[all]` brought (CycloneDX), and SHA256SUMS.

The tools are those of the extra `release`, in an environment of their own under build/. --release also asks whether the
commit is one to be published: nothing uncommitted, its tag with a signature that can be verified, its part of
CHANGELOG.md; and it wants an interpreter of each declared version that `--without` doesn't name. What wasn't tried
stands in the last line. Exit code 1 if anything failed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name
from tests.house.test_docs_run import blocks
from tools.builds import (
    Built,
    build,
    built_in,
    differing,
    export,
    git,
    sdist_problems,
    texts_of_this_machine,
    unpack,
    wheel_problems,
)
from tools.interpreters import Interpreter, declared, find
from tools.smoke import WORDS

from perdure.logs.export import to_claude_code
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TOOLS = ROOT / "build" / "release-tools"
CONSTRAINTS = ROOT / "constraints.txt"
SMOKE_SECONDS = 1_800  # on a machine that is busy; a minute on a quiet one
SYSTEMS = ("linux", "macos", "windows")  # as uv names them
MACOS = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}  # the oldest that wordllama has wheels for; uv would take an older one
CONSUMER = """\
import asyncio

from perdure import PreparedRequest, Session


async def main() -> int:
    async with Session.in_memory() as session:
        await session.set_prefix(model="claude-sonnet-4-5", system="Be brief.")
        await session.append("Hello")
        request: PreparedRequest = await session.prepare()
        return request.tokens


print(asyncio.run(main()))
"""
WRONG = """

async def wrong(session: Session) -> str:
    return (await session.prepare()).tokens
"""
SEEN = 'wrong.py:18: error: Incompatible return value type (got "int", expected "str")'


class CheckFailed(Exception):
    """Why this isn't a release, in a line."""


@dataclass
class Tried:
    """What came of one interpreter."""

    interpreter: Interpreter
    bare: str = "-"
    everything: str = "-"
    types: str = "-"
    seconds: float = 0.0


@dataclass
class Check:
    """One run: where it works, and what it found wrong."""

    work: Path
    problems: list[str] = field(default_factory=list)

    def step(self, what: str, act: Callable[[], str | None]) -> bool:
        """Do something and say what came of it; what goes wrong is kept for the end."""
        begun = time.monotonic()
        try:
            said = act() or "ok"
            is_ok = True
        except CheckFailed as e:
            said, is_ok = str(e), False
        except subprocess.CalledProcessError as e:
            told = (e.stderr or e.stdout or "").strip()[-3_000:]
            said, is_ok = f"{' '.join(map(str, e.cmd[:4]))} ... ended with {e.returncode}\n{told}", False
        except subprocess.TimeoutExpired as e:
            said, is_ok = f"took longer than {e.timeout:.0f} s", False
        print(f"{'ok    ' if is_ok else 'FAILED'} {what}: {said} ({time.monotonic() - begun:.0f} s)", flush=True)
        if not is_ok:
            self.problems.append(what)
        return is_ok


# --- building ---------------------------------------------------------------------------------------------------------


def install_tools() -> None:
    """The environment of the tools, made anew when their pins change."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["release"]
    pins = hashlib.sha256(CONSTRAINTS.read_bytes() + repr(wanted).encode()).hexdigest()
    stamp = TOOLS / "pins"
    if stamp.is_file() and stamp.read_text() == pins:
        return
    shutil.rmtree(TOOLS, ignore_errors=True)
    run(sys.executable, "-m", "venv", TOOLS)
    run(tool("python"), "-m", "pip", "install", "-q", "-c", CONSTRAINTS, *wanted)
    stamp.write_text(pins)


def tool(name: str) -> Path:
    return TOOLS / "bin" / name


def run(*command: str | Path, cwd: Path = ROOT, environ: dict[str, str] | None = None) -> str:
    """What a program prints. Raises `subprocess.CalledProcessError`."""
    env = {**os.environ, **(environ or {})}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def build_all(work: Path) -> Built:
    """Wheel and sdist of the last commit, in dist/. Raises `CheckFailed` where two builds differ."""
    epoch = {"SOURCE_DATE_EPOCH": git(ROOT, "log", "-1", "--format=%ct").strip()}
    python = tool("python")
    first, second, third = work / "first", work / "second", work / "third"
    build(python, export(ROOT, "HEAD", work / "a"), first, "--sdist", "--wheel", environ=epoch)
    elsewhere = export(ROOT, "HEAD", work / "another" / "folder", times_of_now=True)
    others = {**epoch, "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    build(python, elsewhere, second, "--sdist", "--wheel", environ=others, umask=0o077)
    built = built_in(first)
    build(python, unpack(built.sdist, work / "unpacked"), third, "--wheel", environ=epoch)
    if other := differing(first, second, third):
        raise CheckFailed(f"built again, these have other bytes: {', '.join(other)}")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for path in (built.wheel, built.sdist):
        shutil.copyfile(path, DIST / path.name)
    return built_in(DIST)


def check_contents(built: Built, work: Path) -> str:
    tracked = git(ROOT, "ls-tree", "-r", "--name-only", "-z", "HEAD").split("\0")[:-1]
    forbidden = texts_of_this_machine([Path.home(), ROOT, work, Path(sys.prefix)], os.environ)
    found = [*wheel_problems(built.wheel, tracked, forbidden), *sdist_problems(built.sdist, tracked, forbidden)]
    if found:
        raise CheckFailed("\n       ".join([f"{len(found)} things", *found[:20]]))
    sizes = [f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in (built.wheel, built.sdist)]
    return ", ".join(sizes)


def check_metadata(built: Built) -> None:
    run(tool("twine"), "check", "--strict", built.wheel, built.sdist)
    run(tool("check-wheel-contents"), built.wheel)


def check_release(version: str) -> str:
    """Whether the last commit is what a tag may name."""
    if changed := git(ROOT, "status", "--porcelain").strip():
        raise CheckFailed(f"{len(changed.splitlines())} files aren't committed, such as {changed.split()[-1]}")
    tags = git(ROOT, "tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tags:
        raise CheckFailed(f"the last commit doesn't have the tag v{version}: git tag -s v{version}")
    try:
        git(ROOT, "verify-tag", f"v{version}")
    except subprocess.CalledProcessError as e:
        told = " ".join(e.stderr.split()) or "git says no more"
        raise CheckFailed(f"the tag v{version} has no signature that can be verified here: {told}") from e
    if f"## [{version}] - " not in (ROOT / "CHANGELOG.md").read_text():
        raise CheckFailed(f"CHANGELOG.md has no part `## [{version}] - DATE`")
    return f"v{version}"


def check_interpreters(wanted: list[str], found: list[Interpreter]) -> str:
    """Whether each of these versions can be tried."""
    if missing := [minor for minor in wanted if minor not in {one.minor for one in found}]:
        versions = " ".join(missing)
        raise CheckFailed(f"there is no {versions} here: install that, or leave it out by --without {versions}")
    return ", ".join(one.name for one in found)


# --- installing and trying --------------------------------------------------------------------------------------------


def a_log() -> str:
    """A log of Claude Code, in which a pool of connections runs out; its folder is called PROJECT."""
    at = 1_750_000_000.0
    messages = [Message.of("user", f"Why is there a {WORDS}?", id=MessageId("m0"), at=at)]
    for turn in range(12):
        command = f"grep -n pool src/{turn}.py"
        use = {"type": "tool_use", "id": f"c{turn}", "name": "Bash", "input": {"command": command}}
        output = "\n".join(f"{n}: pool = connect(size={turn})" for n in range(300))
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": output}
        messages.append(
            Message.of(
                "assistant",
                [use],
                id=MessageId(f"a{turn}"),
                at=at + turn,
                model="claude-opus-4-5",
                usage=Usage(input_tokens=5_000 + 4_000 * turn, output_tokens=40),
                response_id=ResponseId(f"r{turn}"),
            )
        )
        messages.append(Message.of("user", [result], id=MessageId(f"u{turn}"), at=at + turn))
    messages.append(Message.of("assistant", "The pool holds five connections.", id=MessageId("end"), at=at + 60))
    return b"".join(to_claude_code(messages, session="one", cwd="PROJECT", version="2.1.0")).decode()


def is_cut_off() -> list[str]:
    """What to put before a command so that it has no network; nothing where the machine doesn't allow that."""
    if shutil.which("unshare"):
        for words in (["unshare", "-n"], ["unshare", "-rn"]):
            if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
                return words
    return []


@contextmanager
def nothing_left(*command: str | Path, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A program in a process group of its own, which is gone afterwards."""
    process = subprocess.Popen(
        [*map(str, command)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()


def smoke(python: Path, folder: Path, version: str, *options: str) -> str:
    """Run tools/smoke.py by the interpreter of an environment, in an empty folder."""
    empty, given = folder / "empty", folder / "given"
    for one in (empty, given):
        one.mkdir(parents=True)
    (example, *_) = [block.body for block in blocks(ROOT / "README.md") if block.language == "python" and block.runs]
    (given / "example.py").write_text(example)
    (given / "log.jsonl").write_text(a_log())
    shutil.copyfile(ROOT / "tools" / "smoke.py", given / "smoke.py")
    cut = is_cut_off()
    words = ["--example", given / "example.py", "--log", given / "log.jsonl", "--version", version, *options]
    if cut:
        words.append("--cut-off")
    with nothing_left(*cut, python, "-I", given / "smoke.py", *words, cwd=empty) as process:
        shown, errors = process.communicate(timeout=SMOKE_SECONDS)
        code = process.returncode
    steps = [json.loads(line) for line in shown.splitlines()]
    if failed := [f"{step['step']}: {step['said']}" for step in steps if not step["ok"]]:
        raise CheckFailed("\n       ".join(failed))
    if code or not steps:
        raise CheckFailed(errors[-2_000:] or "it said nothing")
    return f"{len(steps)} steps" + ("" if cut else ", not cut off from the network: unshare isn't allowed here")


def consumer_types(python: Path, folder: Path) -> None:
    """mypy, strict, on a program that uses the installed package; a mistake in one must be seen."""
    folder.mkdir(parents=True)
    (folder / "consumer.py").write_text(CONSUMER)
    (folder / "wrong.py").write_text(CONSUMER + WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--cache-dir", str(folder)]
    run(*command, "consumer.py", cwd=folder)
    wrong = subprocess.run([*command, "wrong.py"], cwd=folder, capture_output=True, text=True, check=False)
    if SEEN not in wrong.stdout:
        raise CheckFailed(f"a mistake in the use of a type isn't seen: {wrong.stdout[-500:]}")


def try_one(check: Check, one: Interpreter, built: Built, version: str) -> Tried:
    """Fresh environments of an interpreter, with and without extras."""
    begun, tried = time.monotonic(), Tried(one)
    bare, everything, types = (check.work / f"{one.minor}-{what}" for what in ("bare", "all", "types"))

    def install_bare() -> None:
        run(one.path, "-m", "venv", bare)
        run(bare / "bin/python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS, built.wheel)

    def install_all() -> None:
        run(tool("uv"), "venv", "-q", "--python", one.path, everything)
        wheel = f"perdure[all] @ {built.wheel.as_uri()}"
        run(tool("uv"), "pip", "install", "-q", "--python", everything / "bin/python", "-c", CONSTRAINTS, wheel)

    def tries(environment: Path, *options: str) -> str:
        return smoke(environment / "bin/python", check.work / f"{environment.name}-smoke", version, *options)

    if check.step(f"{one.minor} installs by its own pip, bare", install_bare):
        tried.bare = _word(check.step(f"{one.minor} bare, smoke", lambda: tries(bare)))
    else:
        tried.bare = "FAILED"
    if check.step(f"{one.minor} installs with [all]", install_all):
        tried.everything = _word(check.step(f"{one.minor} with [all], smoke", lambda: tries(everything, "--extras")))
        python = everything / "bin/python"
        types = check.step(
            f"{one.minor} types of a consumer", lambda: consumer_types(python, check.work / f"{one.minor}-types")
        )
        tried.types = _word(types)
    else:
        tried.everything = "FAILED"
    tried.seconds = time.monotonic() - begun
    return tried


def _word(is_ok: bool) -> str:
    return "ok" if is_ok else "FAILED"


def check_wheels(minor: str, system: str) -> str:
    """All that `[all]` needs has wheels for a version of Python and a system, by constraints.txt."""
    command = ["pip", "compile", "-q", "--no-header", "--only-binary", ":all:", "--python-version", minor]
    source = ["--extra", "all", "-c", CONSTRAINTS, "pyproject.toml"]
    found = run(tool("uv"), *command, "--python-platform", system, *source, environ=MACOS)
    return f"{sum('==' in line for line in found.splitlines())} packages, all as wheels"


def check_pins() -> str:
    """Whether constraints.txt has a pin for all that can be installed, on any declared version and system."""
    oldest = f"{declared(ROOT / 'pyproject.toml')[0]}.9"  # what builds the pages doesn't run on its first releases
    command = ["pip", "compile", "-q", "--universal", "--no-header", "--no-annotate", "--python-version", oldest]
    command += ["--all-extras", "-c", CONSTRAINTS, "pyproject.toml"]
    wanted = {pinned_name(line) for line in run(tool("uv"), *command).splitlines() if "==" in line}
    pinned = {pinned_name(line) for line in CONSTRAINTS.read_text().splitlines() if "==" in line}
    if wanted != pinned:
        lacking, idle = ", ".join(sorted(wanted - pinned)), ", ".join(sorted(pinned - wanted))
        raise CheckFailed(f"constraints.txt: lacks {lacking or 'nothing'}; nothing needs {idle or 'none'}")
    return f"{len(pinned)} pins"


def pinned_name(line: str) -> str:
    """The name of the package in a line such as `name==1.0 ; marker`, as indexes spell it."""
    return canonicalize_name(line.partition("==")[0].strip())


# --- what lies beside the wheel ---------------------------------------------------------------------------------------


def write_sbom(built: Built, python: Path, version: str, work: Path) -> str:
    """What an installation of `[all]` consists of, as CycloneDX."""
    path = DIST / f"{built.wheel.name.split('-')[0]}-{version}.cdx.json"
    about = work / "about" / "pyproject.toml"  # the tool doesn't ask the build backend for a version
    about.parent.mkdir()
    about.write_text((ROOT / "pyproject.toml").read_text().replace('dynamic = ["version"]', f'version = "{version}"'))
    how = ["--output-format", "JSON", "--output-reproducible", "--pyproject", about, "-o", path]
    run(tool("cyclonedx-py"), "environment", *how, python)
    held = json.loads(path.read_text())
    names, subject = {one["name"].lower() for one in held["components"]}, held["metadata"]["component"]
    if (subject["name"], subject.get("version")) != ("perdure", version) or "msgspec" not in names:
        raise CheckFailed(f"{path.name} isn't about perdure {version} and what it needs")
    return f"{path.name}, {len(names)} components"


def write_sums() -> str:
    paths = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (DIST / "SHA256SUMS").write_text("".join(lines))
    return f"SHA256SUMS of {len(lines)} files"


def main() -> int:
    parser = argparse.ArgumentParser(description="Build a release and try it.")
    parser.add_argument(
        "--build-only", action="store_true", help="wheel, sdist and SHA256SUMS into dist/, without trying them"
    )
    parser.add_argument("--release", action="store_true", help="the commit has to be one to be published, too")
    every = declared(ROOT / "pyproject.toml")
    parser.add_argument("--python", nargs="+", metavar="3.N", choices=every, help="only these versions")
    parser.add_argument(
        "--without", nargs="+", metavar="3.N", choices=every, default=[], help="not these versions, which is said"
    )
    options = parser.parse_args()
    if options.release and (options.build_only or options.python):
        parser.error("--release tries each version: --build-only and --python don't go with it, --without does")
    try:
        git(ROOT, "rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        print(f"{ROOT}: a release is built from a commit, and this is no git repository", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started, and the folder, go as well
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        try:
            return checked(Check(Path(folder)), options)
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            return 130


def checked(check: Check, options: argparse.Namespace) -> int:
    """All of it, one after the other."""
    if changed := git(ROOT, "status", "--porcelain").splitlines():
        print(f"note   the last commit is built; {len(changed)} files that aren't committed are left out")
    every = declared(ROOT / "pyproject.toml")
    wanted = [minor for minor in options.python or every if minor not in options.without]
    found = [] if options.build_only else find(wanted, os.environ)
    if options.release and not check.step("interpreters", lambda: check_interpreters(wanted, found)):
        return ended(check)
    builds: list[Built] = []
    if not check.step("the tools", install_tools):
        return ended(check)
    if not check.step("wheel and sdist, the same bytes three times", lambda: builds.append(build_all(check.work))):
        return ended(check)
    (built,) = builds
    version = built.wheel.name.split("-")[1]
    check.step("contents", lambda: check_contents(built, check.work))
    check.step("metadata", lambda: check_metadata(built))
    if options.release:
        check.step("a commit to be published", lambda: check_release(version))
    if options.build_only:
        check.step("sums", write_sums)
        return ended(check)
    tried = [try_one(check, one, built, version) for one in found]
    for minor, system in itertools.product(wanted, SYSTEMS):
        check.step(f"{minor} has wheels on {system}", partial(check_wheels, minor, system))
    check.step("constraints.txt", check_pins)
    if found:
        python = check.work / f"{found[-1].minor}-all" / "bin/python"
        check.step("SBOM", lambda: write_sbom(built, python, version, check.work))
    else:
        check.problems.append("no interpreter")
    check.step("sums", write_sums)
    print(f"\n{'interpreter':<14}{'bare':<8}{'[all]':<8}{'types':<8}seconds")
    for one in tried:
        print(f"{one.interpreter.name:<14}{one.bare:<8}{one.everything:<8}{one.types:<8}{one.seconds:.0f}")
    missing = [minor for minor in wanted if minor not in {one.minor for one in found}]
    for minor in missing:
        print(f"{minor:<14}not here: no interpreter; only whether its wheels are there was asked")
    return ended(check, [minor for minor in every if minor in missing or minor in options.without])


def ended(check: Check, without: list[str] | None = None) -> int:
    """The last line, and the exit code."""
    if check.problems:
        print(f"\nnot a release: {', '.join(check.problems)}")
        return 1
    said = f", without {', '.join(without)}" if without else ""
    print(f"\nall is well{said}; {DIST.name}/ holds {', '.join(sorted(path.name for path in DIST.iterdir()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
