"""What all tests share: the --full flag, and that nothing is skipped in silence."""

from __future__ import annotations

import os
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: children would not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

_LONG = ("tests/chaos/", "tests/integration/deploy/", "tests/faults/")

_skipped: list[tuple[str, str]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the faults with their full counts")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether to run the full counts (`make faults`) or the short version (`make test`)."""
    return bool(request.config.getoption("--full"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first: at the end of a run in several processes, they would run alone."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))


# ------------------------------------------------------------------------------------ in CI a skipped test is a failure


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _note_skip(report)


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    _skipped.append((report.nodeid, reason))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _forbidden_skips() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if skips := _forbidden_skips():
        terminalreporter.section("skipped tests, which CI does not allow", red=True)
        for nodeid, reason in skips:
            terminalreporter.line(f"{nodeid}: {reason}", red=True)


def _forbidden_skips() -> list[tuple[str, str]]:
    """None where KEELBOLT_ALLOW_SKIPS is set: for platforms that lack the tools of some tests."""
    return _skipped if os.environ.get("CI") == "true" and not os.environ.get("KEELBOLT_ALLOW_SKIPS") else []
