"""Every program under examples/ runs to its end."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_kernel_demonstration_loses_nothing() -> None:
    """After a kill, another worker takes over the job; the commands that the demonstration prints work."""
    command = [sys.executable, "examples/kernel_demo.py", "--seconds", "3"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("  yes  ") == 4
    assert "took over" in ran.stdout

    tries = re.findall(r"^ {2}(\S*keelbolt .*)$", ran.stdout, re.MULTILINE)
    assert len(tries) == 3
    for line in tries:
        subprocess.run(shlex.split(line), cwd=ROOT, check=True, capture_output=True, timeout=60)


def test_the_research_agent_survives_its_process() -> None:
    """After a kill after the second page, another process continues, and no page is read twice."""
    command = [sys.executable, "examples/research_agent.py", "knots", "--answer", "a long one", "--kill"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "A short or a long report about knots?" in ran.stdout
    assert "killed; another process takes over" in ran.stdout
    assert ran.stdout.count("could fill a book.") == 3
    assert re.search(r"completed: \d+ entries in the log, 3 pages read", ran.stdout)


@pytest.mark.parametrize(
    ("way", "answer"),
    [
        ("retry", "receipt for 40, at attempt 2"),
        ("verify", "found in the books: 40, at attempt 2"),
        ("ask", "receipt that the person found, at attempt 1"),
    ],
)
def test_the_payment_agent_pays_once(way: str, answer: str) -> None:
    """The process is killed inside the step; with each policy for steps in doubt, the bank has one payment."""
    command = [sys.executable, "examples/payment_agent.py", way]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "the agent's process exited with -9; the bank has 1 payment" in ran.stdout
    assert f"completed: {answer}" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "the bank has 1 payment"
    assert ("the agent asks: The step 'pay' was started" in ran.stdout) == (way == "ask")


def test_the_clerk_asks_before_it_orders_what_is_dear() -> None:
    """Each message goes to a clerk without data in memory: it remembers, waits for an approval, and orders once."""
    command = [sys.executable, "examples/turns_agent.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.findall(r"^clerk: (.*)$", ran.stdout, re.MULTILINE) == [
        "I will remember that.   [completed]",
        "It is ordered 2 × cup. (You said: I like tea.)   [completed]",
        "3 × kettle for 90: shall I?   [input_required]",
        "It is ordered 3 × kettle. (You said: I like tea.)   [completed]",
        "2 × teapot for 90: shall I?   [input_required]",
        "It is not done: too dear. (You said: I like tea.)   [completed]",
    ]
    assert ran.stdout.splitlines()[-1] == "the shop ships: 2 × cup, 3 × kettle"


def test_the_penguiflow_program_goes_on_after_a_kill() -> None:
    """The next process finds the flow's history, the session's tasks and the planner's pause."""
    command = [sys.executable, "examples/penguiflow_agent.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert lines == [
        "the first process was killed",
        "the flow's history: node_start, node_success",
        "the session's tasks: FAILED",
        "one pause waits: Ship the order?",
        "the planner's answer: shipped",
        "pauses that wait: 0",
    ]


def test_the_shop_pays_when_it_may() -> None:
    """The built-in executor gets a price, asks, and pays; another question gets the answer no."""
    command = [sys.executable, "examples/shop_agent.py"]
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.findall(r"^clerk: (.*)$", ran.stdout, re.MULTILINE) == [
        'May I pay 30 EUR for the kettle? Reply "yes" or "no".   [input_required]',
        "The kettle is yours.   [completed]",
        'May I pay 45 EUR for the teapot? Reply "yes" or "no".   [input_required]',
        "I did not pay for the teapot.   [completed]",
    ]
    assert ran.stdout.splitlines()[-1] == "the bank has paid 30 EUR in 1 payment"
