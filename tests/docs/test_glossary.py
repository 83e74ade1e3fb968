"""The glossary has each term once, with a meaning and the standard synonym."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/glossary.md"


def rows() -> list[tuple[str, str, str]]:
    """Return term, meaning and standard synonym of each row."""
    found = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| term"):
            term, meaning, synonym = line.strip("| ").split(" | ")
            found.append((term, meaning, synonym))
    return found


def test_each_term_is_there_once() -> None:
    terms = [term for term, _, _ in rows()]
    assert len(terms) > 60
    assert sorted({term.lower() for term in terms}) == sorted(term.lower() for term in terms)


def test_no_two_terms_have_one_meaning() -> None:
    meanings = [meaning for _, meaning, _ in rows()]
    assert len(set(meanings)) == len(meanings)


def test_no_row_is_incomplete() -> None:
    for row in rows():
        assert all(row), row
