"""`keelbolt` on a Python before 3.11: one sentence, no traceback."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from keelbolt import __main__ as command

ROOT = Path(__file__).parents[2]
SENTENCE = "Keelbolt needs Python 3.11 or newer"
OLD = ("3.8", "3.9", "3.10")


def old_pythons() -> list[str]:
    """Return the interpreters from 3.8 to 3.10 on the path and of pyenv that can run."""
    found = [path for version in OLD if (path := shutil.which(f"python{version}"))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found += [str(path) for version in OLD for path in pyenv.glob(f"versions/{version}.*/bin/python")]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"  # a shim of pyenv may have no interpreter
    return [
        path
        for path in found
        if subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False).stdout.strip() in OLD
    ]


def test_an_old_python_prints_one_sentence() -> None:
    """This runs on every old interpreter of this machine; without any, the two tests below cover it."""
    for python in old_pythons():
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(
            [python, "-m", "keelbolt", "serve"], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 1
        assert ran.stderr.startswith(f"{SENTENCE}; this is Python 3."), ran.stderr
        assert ran.stderr.count("\n") == 1
        assert ran.stdout == ""


@pytest.mark.parametrize("file", ["__init__.py", "__main__.py"])
def test_the_entry_point_uses_old_syntax(file: str) -> None:
    ast.parse((ROOT / "src/keelbolt" / file).read_text(), feature_version=(3, 8))


def test_the_sentence_names_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == f"{SENTENCE}; this is Python 3.10.13"


def test_make_prints_the_same_sentence() -> None:
    assert f'echo "{SENTENCE};' in (ROOT / "Makefile").read_text()
