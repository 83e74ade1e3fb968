"""The examples of the pages run as described: whole programs alone, others in one file, in order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACES = "docs/tutorial/faces.md"
IN_ONE_FILE = ("docs/tutorial/first-worker.md", "docs/tutorial/kernel.md")


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", [*examples("README.md"), *examples(FACES)])
def test_whole_programs_use_no_name_of_another(program: str) -> None:
    assert "Each of these is a whole program." in (ROOT / FACES).read_text()
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "-"]
    checked = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("page", IN_ONE_FILE)
def test_the_examples_of_a_tutorial_run_in_one_file(page: str, tmp_path: Path) -> None:
    assert "collect them in one file" in (ROOT / page).read_text().replace("\n", " ")
    (tmp_path / "tutorial.py").write_text("\n\n".join(examples(page)))
    ran = subprocess.run(
        [sys.executable, "tutorial.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_readme_is_read_in_a_minute() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    assert len(examples("README.md")) == 1
