"""GW-9: the recipes under deploy/ name what is there, and what they start runs as they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.gateway.config import gateway_config

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def instructions() -> list[tuple[str, str]]:
    """The Containerfile's instructions with their arguments, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """GW-9: checked by its own verifier, but for the paths, which are those of the machine it goes to."""
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("needs systemd-analyze")
    unit = (DEPLOY / "perdure-gateway.service").read_text()
    there = unit.replace("/opt/perdure/bin/perdure", "/bin/true")
    path = tmp_path / "perdure-gateway.service"
    path.write_text(re.sub(r"(?:User|Group)=.*\n", "", there))
    done = subprocess.run([verifier, "verify", str(path)], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if path.name in line]
    if done.returncode and not said:
        pytest.skip(f"systemd-analyze can't verify anything here: {done.stderr[:200]}")
    assert said == [] and done.returncode == 0
    path.write_text(path.read_text().replace("Type=exec", "Type=nonsense"))
    done = subprocess.run([verifier, "verify", str(path)], capture_output=True, text=True, check=False)
    assert "nonsense" in done.stderr, "a verifier that finds nothing proves nothing"


def test_the_image_is_made_of_what_is_there() -> None:
    """GW-9: each file that is copied exists and isn't ignored; the last stage runs as an ordinary user."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    found = instructions()
    assert {word for word, _ in found} <= known | {"ENTRYPOINT", "CMD"} and found[0][0] == "FROM"
    for word, rest in found:
        if word == "COPY" and not rest.startswith("--from="):
            assert all((ROOT / name).exists() and name in kept for name in rest.split()[:-1]), rest
    extras = next(rest for word, rest in found if "pip install" in rest)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\[([a-z,]+)\]'", extras)[0].split(",")) <= declared.keys()
    assert [rest for word, rest in found if word == "USER"][-1] not in ("", "0", "root")


def test_what_the_image_starts_answers_its_health_check(tmp_path: Path) -> None:
    """GW-9: its command and its check, run here, on a port that is free."""
    found = dict(instructions())
    started, check = json.loads(found["CMD"]), json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert json.loads(found["ENTRYPOINT"]) == ["perdure"] and started[:1] == ["serve"]
    started[started.index("8787")] = "0"
    command = [sys.executable, "-m", "perdure", *started, "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PERDURE_HOME": str(tmp_path)}
    ) as gateway:
        assert gateway.stdout is not None
        port = json.loads(gateway.stdout.readline())["url"].rpartition(":")[2]
        code = [part.replace("8787", port) for part in check[1:]]
        healthy = subprocess.run([sys.executable, *code], capture_output=True, check=False)
        gateway.terminate()
        gateway.wait(20)
        stopped = subprocess.run([sys.executable, *code], capture_output=True, check=False)
    assert healthy.returncode == 0, healthy.stderr
    assert stopped.returncode != 0


def test_compose_and_unit_start_what_is_there(tmp_path: Path) -> None:
    """GW-9: paths of the compose file lead somewhere, its home is the image's, and the unit's command parses."""
    found = dict(instructions())
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values()
    build: dict[str, Any] = service["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    places = dict(reversed(volume.split(":")[:2]) for volume in service["volumes"])
    assert places[found["VOLUME"]] == "home" and places[f"{found['VOLUME']}/config.toml"] == "./config.toml"
    assert [port.rpartition(":")[2] for port in service["ports"]] == [found["EXPOSE"]]
    start = next(line for line in (DEPLOY / "perdure-gateway.service").read_text().splitlines() if "ExecStart=" in line)
    arguments = shlex.split(start.partition("=")[2])[1:]
    (tmp_path / "config.toml").write_text("[gateway]\nport = -1\n")
    env = {**os.environ, "PERDURE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "perdure", *arguments], capture_output=True, env=env, check=False)
    assert done.returncode == 2 and b"port" in done.stderr and b"No such option" not in done.stderr


def test_the_compose_file_keeps_to_the_schema() -> None:
    """GW-9: that of the Compose specification, which `check-jsonschema` brings along."""
    checker = shutil.which("check-jsonschema")
    if checker is None:
        pytest.skip("needs check-jsonschema (pip install check-jsonschema)")
    command = [checker, "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_example_configuration_is_one_that_is_taken() -> None:
    """GW-9, CLI-5."""
    table = tomllib.loads((DEPLOY / "config.toml").read_text())["gateway"]
    config = gateway_config(table)
    assert config.limits_of("alice").concurrent == 20 and config.limits_of("alice").tokens_per_day == 20_000_000
