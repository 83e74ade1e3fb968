"""The page of the last full chaos run is generated and complete."""

from __future__ import annotations

import re

from tests.chaos.bugs import BUGS
from tests.chaos.checker import PLAIN, READING
from tests.chaos.report import HEAD, PAGE, TITLES

TEXT = PAGE.read_text()


def test_the_page_has_a_full_run_of_every_engine() -> None:
    """Each engine has the numbers of its kills, other faults and violations."""
    assert TEXT.startswith(HEAD)
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
    for title in TITLES.values():
        found = re.search(r"([\d,]+) kill -9, ([\d,]+) other faults", sections[title])
        assert found is not None
        kills, others = (int(number.replace(",", "")) for number in found.groups())
        assert kills >= 1000
        assert others >= 300
        assert re.search(r"\d+ promises, 0 violations", sections[title])


def test_the_page_names_every_promise_and_no_path_of_a_machine() -> None:
    """A new promise needs a new full run."""
    for promise in (*PLAIN, *READING):
        assert f"- {promise.__name__.replace('_', ' ')}\n" in TEXT
    assert not re.search(r"(?<![\w.])/(tmp|work|home|root|dev)/", TEXT)


def test_the_page_has_a_hunt_of_every_planted_bug() -> None:
    """A new bug needs a hunt that finds it."""
    rows = re.findall(r"^\| (.+?) \| (?:sqlite|postgres|redis) \| \d+ \| (.+?) \|", TEXT, re.MULTILINE)
    assert {bug for bug, _ in rows} == {bug.replace("_", " ") for bug in BUGS}
    assert all(seconds.isdigit() for _, seconds in rows)
