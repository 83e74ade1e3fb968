"""`make run` installs only the packages of the demo."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in {names!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed by make run", name=name)
sys.meta_path.insert(0, Blocked())
import examples.demo.__main__
import examples.demo.agent, examples.demo.history, examples.demo.modules, examples.demo.planner, examples.demo.steered
import keelbolt.apcore.worker, keelbolt.server.processes
"""


def dry_run(target: str) -> str:
    command = ["make", "--dry-run", "--always-make", target, "PYTHON=python3"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_run_installs_less_than_test() -> None:
    assert re.findall(r"--editable '(.*?)'", dry_run("run")) == [".[apcore]"]
    assert re.findall(r"--editable '(.*?)'", dry_run("lint")) == [".[dev]"]


def needed(name: str, extras: set[str]) -> set[str]:
    """Return the names of the distributions that this one requires."""
    found: set[str] = set()
    todo = [(name, frozenset(extras))]
    while todo:
        name, wanted = todo.pop()
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue
        for line in map(Requirement, lines):
            environments = [{"extra": extra} for extra in wanted] or [{"extra": ""}]
            if line.marker is None or any(line.marker.evaluate(each) for each in environments):
                own = re.sub(r"[-_.]+", "-", line.name).lower()
                if own not in found:
                    found.add(own)
                    todo.append((own, frozenset(line.extras)))
    return found


def test_the_demo_starts_with_the_packages_of_run() -> None:
    """Every other package of the test environment is hidden from it."""
    allowed = needed("keelbolt", {"apcore"}) | {"keelbolt"}
    hidden = [
        module
        for module, owners in packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & allowed
        and module not in sys.stdlib_module_names
        and module not in ("keelbolt", "examples")
    ]
    assert {"pytest", "langgraph", "asyncpg"} <= set(hidden)
    program = BLOCKED.format(names=set(hidden))
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
