"""Workflows, forms and hooks are valid and consistent with the project."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        *(("github-workflows", path) for path in WORKFLOWS),
        *(("github-issue-forms", path) for path in FORMS),
        ("github-issue-config", GITHUB / "ISSUE_TEMPLATE/config.yml"),
        ("dependabot", GITHUB / "dependabot.yml"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_the_file_obeys_its_schema(schema: str, file: Path) -> None:
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_hooks_are_valid_and_their_programs_installed() -> None:
    file = ROOT / ".pre-commit-config.yaml"
    ran = subprocess.run([BIN / "pre-commit", "validate-config", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for hook in load(file)["repos"][0]["hooks"]:
        folder, program = hook["entry"].split()[0].rsplit("/", 1)
        assert folder == ".venv/bin"
        assert (BIN / program).exists()


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_major_version(file: Path) -> None:
    for step in steps(file):
        if "uses" in step:
            assert re.search(r"@(v\d+|release/v\d+)$", step["uses"]), step["uses"]


def test_the_matrix_has_every_python_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    kinds = [name.rpartition(" :: ")[2] for name in project["classifiers"] if "Python :: 3." in name]
    jobs = load(GITHUB / "workflows/test.yml")["jobs"]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == kinds
    assert set(jobs["macos"]["strategy"]["matrix"]["python"]) <= set(kinds)
    assert jobs["macos"]["env"] == {"KEELBOLT_ALLOW_SKIPS": "1"}
    assert "env" not in jobs["linux"]


def test_every_job_runs_the_one_script() -> None:
    """`.ci/run` runs all parts of the jobs locally."""
    commands = [step["run"] for step in steps(GITHUB / "workflows/test.yml") if "run" in step]
    parts = [command.split()[1] for command in commands if command.startswith(".ci/run")]
    assert sorted(set(parts)) == ["build", "docs", "lint", "test"]
    assert [command for command in commands if "make" in command or "pytest" in command] == []
    ran = subprocess.run([ROOT / ".ci/run", "nonsense"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "usage: .ci/run [test|lint|docs|build]\n")


def test_a_release_needs_no_secret() -> None:
    """Trusted publishing: only the job that publishes has an environment and an OIDC token."""
    assert not any("secrets." in path.read_text() for path in WORKFLOWS)
    release = load(GITHUB / "workflows/release.yml")
    assert release["permissions"] == {}
    assert release["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert release["jobs"]["publish"]["environment"]["name"] == "pypi"
    assert release["jobs"]["publish"]["needs"] == "test"
    assert release["jobs"]["test"]["uses"] == "./.github/workflows/test.yml"
    assert load(GITHUB / "workflows/test.yml")["permissions"] == {"contents": "read"}
