"""kill -9 while a tenant is erased, a policy is applied or an export is imported: readers find no partial data."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keelbolt.data import Subject, erase, export, import_export, resume_erasures
from keelbolt.data.erasing import declare
from keelbolt.data.sweeping import retain
from keelbolt.errors import SubjectNotFound
from keelbolt.kernel import Kernel, open_storage
from keelbolt.tasks import RetentionPolicy
from keelbolt.tasks.families import TASKS
from keelbolt.testing.crash import POINTS
from tests.faults.conftest import Figures
from tests.integration.data.filling import fill_state, fill_tasks, fill_turns, rows_of, rows_with
from tests.integration.frameworks.kept import fill_adk, fill_langgraph, fill_openai

GONE, STAYS = "canary-gone", "canary-stays"


async def _fill(url: str, partition: str, canary: str) -> dict[str, int]:
    """Return the number of rows of each task."""
    async with open_storage(url) as kernel:
        await fill_state(kernel, partition, f"session-{canary}", canary=canary)
        await fill_turns(kernel, f"{partition}/ada", "talk", canary=canary)
        tasks = [await fill_tasks(kernel, "ada", tenant=partition, canary=f"{canary}-{number}") for number in range(3)]
        return {task: len(await rows_with(kernel, task)) for task in tasks}


async def _half_erased(kernel: Kernel, partition: str, tasks: dict[str, int]) -> list[str]:
    """Return the tasks that a reader still finds although some of their data is erased."""
    found = []
    for task, rows in tasks.items():
        if await kernel.get(partition, TASKS, task) is not None and len(await rows_with(kernel, task)) < rows:
            found.append(task)
    return found


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("verb", ["erase", "sweep"])
async def test_kill_at_every_named_point(
    tmp_path: Path, figures: Figures, request: pytest.FixtureRequest, verb: str
) -> None:
    filled = tmp_path / "filled.db"
    gone = await _fill(f"sqlite:///{filled}", "gone", GONE)
    stays = await _fill(f"sqlite:///{filled}", "stays", STAYS)
    async with open_storage(f"sqlite:///{filled}") as kernel:
        kept = len(await rows_with(kernel, STAYS, *stays))
    hits = range(1, 16) if request.config.getoption("--full") else (2, 9)
    killed = resumed = 0
    for point, hit in itertools.product(POINTS, hits):
        directory = tmp_path / f"{point}-{hit}"
        directory.mkdir()
        path = directory / "copy.db"
        shutil.copy(filled, path)
        words = [sys.executable, "-m", "tests.faults.eraser", verb, str(path), f"{point}:{hit}"]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr.decode()
        killed += done.returncode == -signal.SIGKILL
        async with open_storage(f"sqlite:///{path}") as kernel:
            await declare(kernel)
            assert await _half_erased(kernel, "gone/ada", gone) == []
            if verb == "erase":
                # Other processes continue it a minute later; repeating the command does not wait for them.
                with contextlib.suppress(SubjectNotFound):
                    await erase(kernel, Subject(kind="tenant", id="gone"))
                assert await rows_with(kernel, GONE, *gone) == [], (point, hit)
                assert len(await rows_with(kernel, STAYS, *stays)) == kept, (point, hit)
            else:
                resumed += await resume_erasures(kernel)
                await retain(RetentionPolicy(completed=0.0), kernel)
                assert await rows_with(kernel, *gone, *stays) == [], (point, hit)
        shutil.rmtree(directory)
    assert killed >= len(hits) * len(POINTS) * 0.8
    figures(f"kill during {verb}", kills=killed, resumed=resumed, half_erased=0)


@pytest.mark.timeout(3000)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
async def test_kill_during_an_import(tmp_path: Path, figures: Figures, request: pytest.FixtureRequest) -> None:
    """Repeated, the import ends like an uninterrupted one: the same rows, none twice, no leftover import mark."""
    tasks = await _fill(f"sqlite:///{tmp_path}/filled.db", "acme", STAYS)
    exported = io.BytesIO()
    async with open_storage(f"sqlite:///{tmp_path}/filled.db") as kernel:
        await fill_langgraph(kernel, "thread", user="ada", canary=STAYS)
        await fill_openai(kernel, "session", canary=STAYS)
        await fill_adk(kernel, "session", user="ada", canary=STAYS)
        whole = await rows_of(kernel)
        await export(kernel, None, exported)
    hits = (*range(1, 11), *range(12, 48, 4)) if request.config.getoption("--full") else (9, 30)
    killed = incomplete = 0
    for point, hit in itertools.product(POINTS, hits):
        directory = tmp_path / f"{point}-{hit}"
        directory.mkdir()
        path = directory / "copy.db"
        Path(f"{path}.jsonl").write_bytes(exported.getvalue())
        words = [sys.executable, "-m", "tests.faults.eraser", "import", str(path), f"{point}:{hit}"]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr.decode()
        killed += done.returncode == -signal.SIGKILL
        async with open_storage(f"sqlite:///{path}") as kernel:
            await declare(kernel)
            assert await _half_erased(kernel, "acme/ada", tasks) == []
            incomplete += await rows_of(kernel) != whole
            await import_export(kernel, io.BytesIO(exported.getvalue()))
            assert await rows_of(kernel) == whole, (point, hit)
            assert await rows_with(kernel, "data_imports") == []
        shutil.rmtree(directory)
    assert killed >= len(hits) * len(POINTS) * 0.8
    assert incomplete >= killed * 0.8
    figures("kill during import", kills=killed, half_imported=0)
