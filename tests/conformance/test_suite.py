"""The suite itself: its subjects, its report, its documentation."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from keelbolt.conformance import kernel, state_store, task_storage, turn_callbacks
from keelbolt.conformance.kernel import (
    ByUrl,
    Finding,
    KernelPlace,
    KernelSubject,
    LawBroken,
    load,
    validate,
)
from keelbolt.conformance.kernel.laws import commit
from keelbolt.errors import InvalidValue
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.kernel.records import Collection
from tests.conformance.broken.kernel.records import TakeLeavesTheRecord

ROOT = Path(__file__).parents[2]
MEMORY = KernelSubject("memory", ByUrl("memory:"))


def plain() -> Kernel:
    return MemoryKernel()


def declaring(*, declare: Sequence[Collection] = ()) -> Kernel:
    return MemoryKernel(declare=declare)


def returns_a_subject() -> KernelSubject:
    return MEMORY


def returns_nonsense() -> object:
    return "a kernel"


# ------------------------------------------------------------------------------------------------------------- laws


PAGES = {
    kernel: "conformance.md",
    task_storage: "task-storage.md",
    state_store: "state-store-laws.md",
    turn_callbacks: "turn-callbacks-laws.md",
}


@pytest.mark.parametrize("package", PAGES)
def test_every_law_is_one_sentence(package: ModuleType) -> None:
    for law in package.all_laws():
        assert law.says.endswith("."), law.name
        assert len(law.says) <= 120, (law.name, len(law.says))


@pytest.mark.parametrize(("package", "page"), PAGES.items())
def test_the_documentation_lists_the_laws(package: ModuleType, page: str) -> None:
    """`python -m keelbolt.conformance PACKAGE` prints the current list."""
    documented = (ROOT / "docs/reference" / page).read_text().split("<!-- laws -->\n")[1]
    assert documented.split("\n") == [*package.laws_as_markdown().rstrip().split("\n"), ""]


def test_the_module_prints_the_laws() -> None:
    command = [sys.executable, "-m", "keelbolt.conformance", "turn_callbacks"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout == turn_callbacks.laws_as_markdown()
    )


def test_no_file_of_laws_is_long() -> None:
    for path in (ROOT / "src/keelbolt/conformance").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 500, path.name


def test_the_suite_needs_neither_pytest_nor_hypothesis() -> None:
    program = (
        "import sys, keelbolt.conformance.kernel\n"
        "print([name for name in ('pytest', 'hypothesis') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_without_hypothesis_histories_say_what_to_install() -> None:
    program = "import sys; sys.modules['hypothesis'] = None\nimport keelbolt.conformance.kernel.histories"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "hypothesis is not installed. Install it with: pip install 'keelbolt[dev]'" in answer.stderr


# ----------------------------------------------------------------------------------------------------------- report


async def test_a_report_of_a_conforming_engine() -> None:
    seen: list[Finding] = []
    report = await validate(MEMORY, only=["records", "persistence"], progress=seen.append)
    assert report.ok
    assert report.findings == tuple(seen)
    assert {finding.law.group for finding in report.passed} == {"records"}
    assert {finding.message for finding in report.skipped} == {
        f"memory does not declare {need}" for need in ("persistent", "prompt", "shared")
    }
    assert "persistent" in str(report)


async def test_a_report_of_a_broken_engine() -> None:
    report = await validate(TakeLeavesTheRecord, only=["records"])
    assert not report.ok
    assert "take_returns_the_record_and_removes_it" in {finding.law.name for finding in report.failed}
    text = str(report)
    assert "FAILED  take_returns_the_record_and_removes_it" in text
    assert "but: the taken record still exists" in text
    decoded = json.loads(json.dumps(report.to_dict()))
    assert (decoded["ok"], decoded["failed"]) == (False, len(report.failed))
    assert {law["verdict"] for law in decoded["laws"]} == {"passed", "failed"}


async def test_an_unexpected_error_is_a_finding() -> None:
    class Crashing(MemoryKernel):
        async def open(self) -> None:
            raise ZeroDivisionError("out of order")

    report = await validate(Crashing, only=["versions_count_from_one"])
    assert [finding.message for finding in report.failed] == ["ZeroDivisionError: 'out of order'"]


async def test_a_law_that_does_not_end_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(MemoryKernel):
        async def flush(self) -> None:
            await asyncio.sleep(3600)

    monkeypatch.setattr("keelbolt.conformance.suite.LAW_SECONDS", 0.1)
    report = await validate(Hanging, only=["a_commit_that_is_not_awaited_is_committed"])
    assert [finding.message for finding in report.failed] == ["no end within 0.1 s"]


async def test_an_unknown_law_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no such law or group: lawless"):
        await validate(MEMORY, only=["lawless"])


# ---------------------------------------------------------------------------------------------------------- subjects


@pytest.mark.parametrize("given", [plain, declaring, returns_a_subject, MEMORY, MemoryKernel])
async def test_every_kind_of_subject_argument(given: KernelSubject) -> None:
    report = await validate(given, only=["one_commit_writes_records_logs_work_and_blobs"])
    assert report.ok, str(report)


def test_load_returns_the_named_subject() -> None:
    assert load("tests.conformance.test_suite:MEMORY").name == "memory"
    assert load("keelbolt.kernel.memory:MemoryKernel").name == "keelbolt.kernel.memory:MemoryKernel"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nothing", "write it as module:attribute"),
        (":plain", "write it as module:attribute"),
        ("no_such_module:factory", "can't be loaded"),
        ("tests.conformance.test_suite:missing", "can't be loaded"),
        ("tests.conformance.test_suite:ROOT", "must be a KernelSubject or a factory"),
        ("tests.conformance.test_suite:returns_nonsense", "must return a KernelSubject or an unopened Kernel"),
    ],
)
def test_load_errors_name_the_cause(reference: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        load(reference)


def test_an_invalid_subject_is_refused() -> None:
    with pytest.raises(InvalidValue, match="neither a KernelSubject nor a factory"):
        KernelSubject.of("memory:")


async def test_places_are_new_and_are_removed() -> None:
    discarded: list[KernelPlace] = []

    async def discard(place: KernelPlace) -> None:
        assert place.directory.exists()
        discarded.append(place)

    subject = KernelSubject("memory", ByUrl("memory:"), discard=discard)
    async with subject.place() as one, subject.place() as two:
        assert one.name != two.name
        assert list(one.directory.iterdir()) == []
    assert discarded == [two, one]
    assert not one.directory.exists()


async def test_laws_leave_no_threads_behind() -> None:
    before = threading.active_count()
    await validate(MEMORY, only=["commit"])
    assert threading.active_count() <= before + 1  # the loop's own pool may have started a thread


def test_laws_are_plain_functions() -> None:
    """The author of an engine can call a law with a kernel."""
    assert commit.call_order_is_commit_order.__doc__
    assert issubclass(LawBroken, AssertionError)
