"""Attack: another package or base image under the name that the image is built from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = ("apcore", "auth", "grpc", "postgres", "redis")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", re.MULTILINE)


def lines(text: str) -> list[str]:
    """Return the logical lines of a lock or a Dockerfile, without comments."""
    whole = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    return [line for line in whole.splitlines() if line.strip()]


def locked(name: str) -> dict[str, str]:
    """Return the packages of a lock with their versions."""
    return {canonicalize_name(name): version for name, version in PINNED.findall((ROOT / "deploy" / name).read_text())}


def test_the_lock_covers_the_packages_of_the_image() -> None:
    found = locked("requirements.lock")
    wanted = list(PROJECT["project"]["dependencies"])
    for extra in EXTRAS:
        wanted += PROJECT["project"]["optional-dependencies"][extra]
    for text in wanted:
        requirement = Requirement(text)
        version = found.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked; run: make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{text}: {version} is locked; run: make lock"
    assert "cryptography" in found, "pyjwt[crypto] brings it"


def test_the_lock_covers_the_build_packages() -> None:
    found = locked("build.lock")
    for text in PROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(found[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock"])
def test_every_package_has_a_version_and_hashes(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text()
    for line in lines(text):
        assert PINNED.match(line), line[:100]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line[:100]
    assert "://" not in text, "a lock names no place that packages come from"


def test_the_image_installs_the_locked_packages() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    [base] = re.findall(r"^ARG BASE=(\S+)$", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", base)
    assert set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) == {"${BASE}"}
    for command in re.findall(r"pip (?:install|wheel)[^&\n]*", "\n".join(lines(dockerfile))):
        from_lock = "--require-hashes" in command and "--requirement" in command
        from_here = "--no-deps" in command and ("--no-index" in command or "--no-build-isolation" in command)
        assert from_lock or from_here, command
