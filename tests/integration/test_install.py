"""The result of `pip install`: the built files, in an empty virtual environment outside of the checkout."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.request
import uuid
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keelbolt import __version__

ROOT = Path(__file__).parents[2]
WHEEL = f"keelbolt-{__version__}-py3-none-any.whl"
SDIST = f"keelbolt-{__version__}.tar.gz"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist of the checkout and the wheel that is built from this sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    assert sorted(path.name for path in folder.iterdir()) == [WHEEL, SDIST]
    return folder


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    """Return the environment of this process without variables that lead to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}


# ----------------------------------------------------------------------------------------------------------- contents


def test_the_wheel_has_the_package_and_nothing_else(dist: Path) -> None:
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        names = {name for name in wheel.namelist() if not name.startswith(f"keelbolt-{__version__}.dist-info/")}
    source = ROOT / "src"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}
    assert "keelbolt/py.typed" in names
    for kind in (".sql", ".lua", ".html", ".css", ".js"):
        assert any(name.endswith(kind) for name in names), kind
    assert not any(part in name.split("/") for name in names for part in ("tests", "benchmarks", "bench"))


def test_the_sdist_has_what_the_tests_need(dist: Path) -> None:
    with tarfile.open(dist / SDIST) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "Makefile",
        "conftest.py",
        ".ci/run",
        ".github/workflows/test.yml",
        "tests/conftest.py",
        "tests/tools.sh",
        "benchmarks/compare.py",
        "docs/README.md",
        "examples/demo/__init__.py",
    } <= names
    assert not any("__pycache__" in name or name.endswith(".db") for name in names)


def test_the_description_is_valid_for_pypi(dist: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", dist / WHEEL, dist / SDIST)


# ------------------------------------------------------------------------------------------------------------ install


@pytest.mark.parametrize("file", [WHEEL, SDIST])
def test_the_first_example_of_the_readme_runs(dist: Path, tmp_path: Path, file: str) -> None:
    """Installed from the file alone, the agent of the README responds over HTTP and to the installed command."""
    python = installed(dist / file, tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    found = run(python, "-c", "import keelbolt; print(keelbolt.__file__)", cwd=work).strip()
    assert Path(found).is_relative_to(tmp_path / "venv")
    assert run(python.with_name("keelbolt"), "--version", cwd=work) == f"keelbolt {__version__}\n"

    port = free_port()
    (work / "agent.py").write_text(first_example().replace("port=8000", f"port={port}"))
    url = f"http://localhost:{port}"
    with serving(python, work, url):
        task = send(url, "Hello there")
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert "".join(part["text"] for part in task["artifacts"][0]["parts"]) == "Hello there "
        assert "Hello again" in run(python.with_name("keelbolt"), "send", url, "Hello again", cwd=work)
    assert (work / "agent.db").exists()


@pytest.mark.parametrize("page", ["langgraph", "openai-agents", "google-adk", "pydantic-ai"])
def test_the_programs_of_the_framework_pages_run(dist: Path, tmp_path: Path, page: str) -> None:
    """Installed from the wheel, the whole programs of the page run outside of the checkout."""
    python = installed(dist / WHEEL, tmp_path)
    text = (ROOT / f"docs/howto/{page}.md").read_text()
    programs = "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    (tmp_path / "page.py").write_text("from __future__ import annotations\n" + programs)
    run(python, "-W", "error::DeprecationWarning:page", "-c", "import page", cwd=tmp_path)


def installed(file: Path, folder: Path) -> Path:
    """Return the Python of a new virtual environment with this file; offline, with the dependencies of this one."""
    if file.name.endswith(".tar.gz"):  # like pip, with the build backend of this environment
        offline = ("--no-index", "--no-deps", "--no-build-isolation")
        run(sys.executable, "-m", "pip", "wheel", "--quiet", *offline, "--wheel-dir", folder / "wheels", file)
        file = folder / "wheels" / WHEEL
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", file)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    assert site.is_relative_to(folder)
    # A .pth adds a directory after the environment's own packages, and runs none of the .pth files there: the editable
    # install of the checkout stays invisible.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def first_example() -> str:
    section = (ROOT / "README.md").read_text().partition("### An agent\n")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    assert "# agent.py" in found[1]
    assert "port=8000" in found[1]
    return found[1]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@contextmanager
def serving(python: Path, work: Path, url: str) -> Iterator[None]:
    with (work / "log").open("w") as log:
        process = subprocess.Popen([python, "agent.py"], cwd=work, env=environment(), stdout=log, stderr=log)
        try:
            end = time.monotonic() + 60
            while not answers(f"{url}/health"):
                assert process.poll() is None, (work / "log").read_text()
                assert time.monotonic() < end, (work / "log").read_text()
                time.sleep(0.05)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def send(url: str, text: str) -> Any:
    message = {"role": "ROLE_USER", "messageId": str(uuid.uuid4()), "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"content-type": "application/json", "a2a-version": "1.0"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)["result"]["task"]
