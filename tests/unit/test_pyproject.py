"""pyproject.toml names no file or folder that does not exist."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def braces(pattern: str) -> list[str]:
    """Expand {a,b} in a pattern; pathlib does not support braces."""
    head, opened, rest = pattern.partition("{")
    if not opened:
        return [pattern]
    choices, _, tail = rest.partition("}")
    return [head + choice + tail for choice in choices.split(",")]


def exists(pattern: str) -> bool:
    return any(True for _ in ROOT.glob(pattern.removeprefix("/")))


@pytest.mark.parametrize("name", PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
def test_the_files_of_the_sdist_exist(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize("name", PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
def test_the_packages_of_the_wheel_exist(name: str) -> None:
    assert (ROOT / name / "__init__.py").exists()


@pytest.mark.parametrize("pattern", PROJECT["tool"]["ruff"]["lint"]["per-file-ignores"])
def test_ignored_rules_are_of_files_that_exist(pattern: str) -> None:
    for each in braces(pattern):
        assert exists(each), each


@pytest.mark.parametrize("name", [*PROJECT["project"]["license-files"], PROJECT["project"]["readme"]])
def test_named_files_exist(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize("name", PROJECT["tool"]["pytest"]["ini_options"]["testpaths"])
def test_test_paths_exist(name: str) -> None:
    assert exists(name)


def test_layers_exist() -> None:
    """import-linter allows a layer in parentheses to be missing; none is."""
    for contract in PROJECT["tool"]["importlinter"]["contracts"]:
        for container in contract["containers"]:
            folder = ROOT / "src" / container.replace(".", "/")
            for layer in contract["layers"]:
                for name in layer.replace("(", "").replace(")", "").replace("|", ":").split(":"):
                    path = folder / name.strip()
                    assert path.is_dir() or path.with_suffix(".py").is_file(), path
