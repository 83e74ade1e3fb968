"""The manifests of deploy/ match the schemas of Kubernetes and Compose, and their commands start."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from keelbolt.tasks.settings import TaskSettings
from tests.integration.deploy.watched import DEPLOY, ROOT

FOLDER = DEPLOY / "kubernetes"
CONTAINERS = ("Dockerfile", "deploy/kubernetes/deployment.yaml")


def resources() -> list[dict[str, Any]]:
    """Return the output of kustomize for the folder; without kubectl, the files with the labels that it would add."""
    if shutil.which("kubectl") is not None:
        text = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True).stdout
        return list(yaml.safe_load_all(text))
    settings = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    labels = settings["labels"][0]["pairs"]
    found = [yaml.safe_load((FOLDER / name).read_text()) for name in settings["resources"]]
    for each in found:
        match each["kind"]:
            case "Service":
                each["spec"]["selector"] = labels
            case "Deployment":
                each["spec"]["template"]["metadata"]["labels"] = labels
                each["spec"]["selector"] = {"matchLabels": labels}
            case _:
                each["spec"]["selector"] = {"matchLabels": labels}
    return found


def deployment() -> dict[str, Any]:
    return next(each for each in resources() if each["kind"] == "Deployment")


def test_the_resources_are_valid() -> None:
    kinds = [each["kind"] for each in resources()]
    assert {"Deployment", "Service", "PodDisruptionBudget"} <= set(kinds)
    for each in resources():
        kubernetes_validate.validate(each, "1.33", strict=True)


def test_a_wrong_resource_is_found() -> None:
    wrong = deployment()
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.33", strict=True)


def test_liveness_does_not_ask_the_database_and_readiness_does() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    literals = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"][0]["literals"]
    drain = float(dict(each.split("=") for each in literals)["KEELBOLT_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] >= drain + 10
    for name in CONTAINERS:
        assert "/live" in (ROOT / name).read_text()


def test_the_selector_of_the_service_finds_the_pods() -> None:
    service = next(each for each in resources() if each["kind"] == "Service")
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_compose_is_valid_and_gives_tasks_their_time() -> None:
    file = DEPLOY / "compose/compose.yaml"
    checker = str(Path(sys.executable).with_name("check-jsonschema"))
    lint = [checker, "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    services = yaml.safe_load(file.read_text())["services"]
    assert set(services) == {"database", "agent", "worker"}
    assert int(services["agent"]["stop_grace_period"].rstrip("s")) >= TaskSettings().drain_seconds + 10
    assert services["agent"]["ports"] == ["127.0.0.1:8000:8000"]


@pytest.mark.parametrize("name", ["agent", "worker"])
def test_the_commands_of_compose_load_the_agent(name: str, tmp_path: Path) -> None:
    """The commands run in the environment of the image up to the connection to the database, which does not exist."""
    service = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"][name]
    shutil.copy(DEPLOY / "compose/agent.py", tmp_path)
    environment = {**service["environment"], "HOST": "0.0.0.0", "PORT": "8000", "PATH": "/usr/bin"}
    environment["KEELBOLT_STORAGE"] = "postgresql://agent:secret@127.0.0.1:1/agents"
    command = [sys.executable, "-m", *service["command"]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert "127.0.0.1:1/agents: connection refused" in done.stderr, done.stderr
