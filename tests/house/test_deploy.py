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

import jsonschema
import pytest
import yaml
from tests.commands import command

from perdure.gateway.config import GatewayConfig, gateway_config
from perdure.gateway.gateway import SETTLE_SECONDS
from perdure.gateway.pages import PROBES

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
SCHEMAS = Path(__file__).parent / "schemas"
ROOM_SECONDS = 10  # that is left behind what a gateway takes to end
CONNECTIONS = 8  # of a process to the database


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
    """GW-9, OPS-1: of the released wheel and files that exist and aren't ignored; it runs as an ordinary user."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    known = {"ARG", "FROM", "LABEL", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    found = instructions()
    assert {word for word, _ in found} <= known | {"ENTRYPOINT", "CMD"}
    copied = [name for word, rest in found if word == "COPY" and "--from=" not in rest for name in rest.split()[:-1]]
    assert "dist/perdure-*.whl" in copied and {name.partition("/")[0] for name in copied} == kept
    assert all((ROOT / name).exists() for name in copied if not name.startswith("dist/"))
    extras = next(rest for word, rest in found if "pip install" in rest)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\[([a-z0-9,]+)\]\"", extras)[0].split(",")) <= declared.keys()
    assert [rest for word, rest in found if word == "USER"][-1] not in ("", "0", "root")


@pytest.mark.nightly
def test_what_the_image_starts_answers_its_health_check(tmp_path: Path) -> None:
    """GW-9: its command and its check, run here, on a port that is free."""
    found = dict(instructions())
    started, check = json.loads(found["CMD"]), json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert json.loads(found["ENTRYPOINT"]) == ["perdure"] and started[:1] == ["serve"]
    started[started.index("8787")] = "0"
    serving = [sys.executable, "-m", "perdure", *started, "--json"]
    with subprocess.Popen(
        serving, stdout=subprocess.PIPE, text=True, env={**os.environ, "PERDURE_HOME": str(tmp_path)}
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
    done = command(*arguments, cwd=tmp_path, env={**os.environ, "PERDURE_HOME": str(tmp_path)})
    assert done.returncode == 2 and "port" in done.stderr and "No such option" not in done.stderr


def problems(schema: str, at: str, value: Any) -> list[str]:
    """What a schema, or the part of it that is `at` a place, has against a value."""
    whole = json.loads((SCHEMAS / schema).read_text())
    validator = jsonschema.validators.validator_for(whole)({**whole, "$ref": at} if at else whole)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_a_compose_file_keeps_to_the_schema(path: Path) -> None:
    """GW-9, SCL-1: that of the Compose specification; what is misspelt is refused."""
    read = yaml.safe_load(path.read_text())
    assert problems("compose.json", "", read) == []
    for service in read["services"].values():
        assert problems("compose.json", "", {**read, "services": {"one": {**service, "restrat": "always"}}})


def test_gateways_over_one_database_are_started_as_the_manifests_say() -> None:
    """SCL-1, SEC-7: in the compose file, only who migrates knows the password of the database's owner."""
    services = yaml.safe_load((DEPLOY / "compose-shared.yaml").read_text())["services"]
    assert services["gateway"]["deploy"]["replicas"] == 2 and services["worker"]["command"] == ["worker"]
    knows = {name for name, one in services.items() if "database.env" in one["env_file"]}
    assert knows == {"database", "migrate"}
    config = gateway_config(tomllib.loads((DEPLOY / "config-shared.toml").read_text())["gateway"])
    assert config.background == "workers" and config.store == "postgresql://gateway@database/perdure"
    assert "postgresql://postgres@database/perdure" in services["migrate"]["command"][0]
    for one in (services["gateway"], services["worker"]):
        assert int(one["stop_grace_period"].removesuffix("s")) >= config.drain_seconds + SETTLE_SECONDS + ROOM_SECONDS
        assert one["read_only"] and one["cap_drop"] == ["ALL"]


# --- Kubernetes ------------------------------------------------------------------------------------------------------

Manifest = dict[str, Any]


def manifests() -> list[Manifest]:
    paths = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [one for path in paths for one in yaml.safe_load_all(path.read_text())]


def of_kind(*kinds: str) -> dict[str, Manifest]:
    return {one["metadata"]["name"]: one for one in manifests() if one["kind"] in kinds}


def pods() -> dict[str, Manifest]:
    """The pods that manifests make, by the name of what makes them."""
    return {name: one["spec"]["template"] for name, one in of_kind("Deployment", "Job").items()}


def container(name: str) -> Manifest:
    (found,) = pods()[name]["spec"]["containers"]
    return dict(found)


def cluster_config() -> GatewayConfig:
    return gateway_config(tomllib.loads(of_kind("ConfigMap")["perdure"]["data"]["config.toml"])["gateway"])


@pytest.mark.parametrize("one", manifests(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_a_manifest_keeps_to_the_schema_of_its_kind(one: Manifest) -> None:
    """SCL-1: Kubernetes' own; what is misspelt or of the wrong type is refused."""
    at = f"#/kinds/{one['kind']}"
    assert problems("kubernetes.json", at, one) == []
    assert problems("kubernetes.json", at, {**one, "metdata": {}})
    assert problems("kubernetes.json", at, {**one, "apiVersion": "v0"})
    assert problems("kubernetes.json", at, {**one, "metadata": {**one["metadata"], "labels": ["a"]}})
    assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "perdure"


def test_the_manifests_fit_together() -> None:
    """SCL-1: what one names, another one makes; selectors find their pods and nobody else's."""
    made = {(one["kind"], one["metadata"]["name"]) for one in manifests()}
    labels = {name: pod["metadata"]["labels"] for name, pod in pods().items()}
    for name, pod in pods().items():
        spec, (box,) = pod["spec"], pod["spec"]["containers"]
        for source in box["envFrom"]:
            assert ("Secret", source["secretRef"]["name"]) in made
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert {mount["name"] for mount in box["volumeMounts"]} == volumes.keys()
        for volume in volumes.values():
            assert "emptyDir" in volume or ("ConfigMap", volume["configMap"]["name"]) in made
        for spread in spec.get("topologySpreadConstraints", ()):
            assert spread["labelSelector"]["matchLabels"] == {"app": name}
    for kind in ("Deployment", "PodDisruptionBudget"):
        for name, one in of_kind(kind).items():
            wanted = one["spec"]["selector"]["matchLabels"].items()
            assert {pod for pod, own in labels.items() if wanted <= own.items()} == {name}
    (service,), (box,) = of_kind("Service").values(), [container("gateway")]
    (port,) = box["ports"]
    assert (
        service["spec"]["selector"] == {"app": "gateway"} and service["spec"]["ports"][0]["targetPort"] == port["name"]
    )
    assert str(port["containerPort"]) == dict(instructions())["EXPOSE"] == box["args"][box["args"].index("--port") + 1]
    assert of_kind("NetworkPolicy")["clients"]["spec"]["ingress"][0]["ports"] == [{"port": port["containerPort"]}]
    (metrics,) = container("worker")["ports"]
    assert container("worker")["args"][-1] == f"0.0.0.0:{metrics['containerPort']}"
    assert of_kind("NetworkPolicy")["workers"]["spec"]["ingress"][0]["ports"] == [{"port": metrics["containerPort"]}]
    assert of_kind("HorizontalPodAutoscaler")["gateway"]["spec"]["scaleTargetRef"]["name"] in of_kind("Deployment")


def test_probes_and_grace_are_those_of_the_gateway() -> None:
    """SCL-3, GW-9: paths that are there, and time enough to drain before anything is killed."""
    box, drains = container("gateway"), cluster_config().drain_seconds
    paths = {name: box[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert set(paths.values()) <= PROBES.keys() and paths["readiness"] == "/readyz"
    assert paths["liveness"] == "/healthz", "a database that is away is no reason to restart a gateway"
    command, seconds = box["lifecycle"]["preStop"]["exec"]["command"]
    needed = {"gateway": int(seconds), "worker": 0}
    assert command == "sleep"
    for name, before in needed.items():
        grace = pods()[name]["spec"]["terminationGracePeriodSeconds"]
        assert grace >= before + drains + SETTLE_SECONDS + ROOM_SECONDS
    rolling = of_kind("Deployment")["gateway"]["spec"]["strategy"]["rollingUpdate"]
    assert rolling["maxUnavailable"] == 0 and of_kind("PodDisruptionBudget").keys() == {"gateway", "worker"}


def test_pods_may_do_nothing_that_they_needn_t() -> None:
    """SEC-7: an ordinary user, a root that nobody writes to, no capabilities, and no token of the cluster."""
    image = int(next(rest for word, rest in instructions() if word == "USER"))
    for name, pod in pods().items():
        spec, box = pod["spec"], container(name)
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == image
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        rights = box["securityContext"]
        assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert {"memory"} <= box["resources"]["limits"].keys() and {"cpu", "memory"} <= box["resources"][
            "requests"
        ].keys()
        assert [source["secretRef"]["name"] for source in box["envFrom"]] == [
            "owner" if name == "migrate" else "gateway"
        ]
    everything = of_kind("NetworkPolicy")["nothing-else"]["spec"]
    assert everything == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_the_cluster_s_configuration_has_its_keys_and_connections() -> None:
    """SCL-1, SCL-7: each key that is named is in the secret, and PostgreSQL's default connections are enough."""
    config, secret = cluster_config(), of_kind("Secret")["gateway"]["stringData"]
    named = {key for one in config.tenants.values() for key in (one.key_env, *one.upstream_keys.values())}
    assert secret.keys() == named | {"PGPASSWORD"} and set(secret.values()) == {"CHANGE-ME"}
    assert config.host == "0.0.0.0" and config.background == "workers"
    assert config.store is not None and "sslmode=verify-full" in config.store and "@postgres" in config.store
    deployments = of_kind("Deployment")
    most = (
        of_kind("HorizontalPodAutoscaler")["gateway"]["spec"]["maxReplicas"] + deployments["worker"]["spec"]["replicas"]
    )
    surge = sum(one["spec"]["strategy"]["rollingUpdate"]["maxSurge"] for one in deployments.values())
    assert (most + surge) * CONNECTIONS <= 100 - 3 - 1  # three are kept for superusers, and somebody migrates


@pytest.mark.parametrize("name", ["gateway", "worker", "migrate"])
def test_what_the_manifests_start_is_a_command(name: str, tmp_path: Path) -> None:
    """SCL-1, CLI-3: all that it lacks is the database."""
    arguments = [
        part.replace("postgres.perdure.svc:5432", "127.0.0.1:9").replace("sslmode=verify-full&", "")
        for part in container(name)["args"]
    ]
    (tmp_path / "config.toml").write_text('[gateway]\nstore = "postgresql://a@127.0.0.1:9/b"\n')
    done = command(*arguments, cwd=tmp_path, env={**os.environ, "PERDURE_HOME": str(tmp_path)})
    assert done.returncode == 1 and "port 9 failed" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_the_example_configuration_is_one_that_is_taken() -> None:
    """GW-9, CLI-5."""
    table = tomllib.loads((DEPLOY / "config.toml").read_text())["gateway"]
    config = gateway_config(table)
    assert config.limits_of("alice").concurrent == 20 and config.limits_of("alice").tokens_per_day == 20_000_000
