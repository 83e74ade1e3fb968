"""Crash points: the process ends at the given point, and at no other."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from keelbolt.testing.crash import CrashPoint

PROGRAM = """
import sys
from keelbolt.testing.crash import POINTS, CrashPoint
probe = CrashPoint.parse(sys.argv[1])
for _ in range(3):
    for point in POINTS:
        print(point, flush=True)
        probe(point)
"""


def run(crash: str) -> tuple[int, list[str]]:
    answer = subprocess.run([sys.executable, "-c", PROGRAM, crash], capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout.split()


def test_it_kills_its_own_process_at_the_nth_hit() -> None:
    code, passed = run("begun:2")
    assert code == -signal.SIGKILL
    assert passed.count("begun") == 2
    assert passed[-1] == "begun"


def test_it_sends_the_signal_it_was_given() -> None:
    code, passed = run("saved:1:SIGTERM")
    assert code == -signal.SIGTERM
    assert passed[-1] == "saved"


def test_it_does_nothing_before_its_hit() -> None:
    code, passed = run("committed:4")
    assert (code, len(passed)) == (0, 21)


def test_an_unknown_point_is_refused() -> None:
    with pytest.raises(ValueError, match="not a crash point"):
        CrashPoint("nowhere")
