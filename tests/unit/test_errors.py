"""Errors: one documented tree, with self-explanatory messages."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import get_args

import pytest

from keelbolt import errors
from keelbolt.errors import BlobNotFound, CommitRefused, KeelboltError, LogTrimmed, MissingExtra, Reason
from keelbolt.kernel.blobs import Attach
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.logs import Head
from keelbolt.kernel.records import Absent, FieldIn, Patch, Replace
from keelbolt.kernel.work import Complete, Enqueue

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, KeelboltError)]


def test_the_documented_tree_matches_the_classes() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^ {4}([│ ├└─]*)([A-Z]\w+)", line):
            depth = len(match[1]) // 4
            del path[depth:]
            path.append(match[2])
            drawn[match[2]] = path[-2] if depth else "Exception"
    parents = {kind.__name__: [base.__name__ for base in kind.__bases__ if base.__name__[0] != "_"] for kind in KINDS}
    assert drawn == {name: found[0] for name, found in parents.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_docstring_is_the_message(kind: type[KeelboltError]) -> None:
    assert kind.__doc__
    if len(inspect.signature(kind).parameters) == 1 and "message" in inspect.signature(kind).parameters:
        assert str(kind()) == kind.__doc__
        assert str(kind("other words")) == "other words"


REFUSALS: list[tuple[Reason, Operation, object, str]] = [
    ("version", Replace("note", "a", 2, b""), 3, "Replace of note/a expects version 2 but it is at 3"),
    ("absent", Absent("note", "a"), 3, "Absent of note/a needs it absent but it is at version 3"),
    ("present", Patch("note", "a", {}), 0, "Patch of note/a needs it present but there is none"),
    ("field", FieldIn("note", "a", "state", ("x",)), "y", "FieldIn of note/a: the field 'state' is 'y'"),
    ("head", Head("log", "a", 2), 3, "Head of log/a expects the log's head at 2 but it is at 3"),
    ("fence", Complete("jobs", "a", 2), 3, "Complete of jobs/a: fence 2 no longer holds this work (now 3)"),
    ("held", Enqueue("jobs", "a", worker="w"), 3, "Enqueue of jobs/a: another worker holds it (fence 3)"),
    ("blob", Attach("d" * 64, "me"), None, f"Attach of {'d' * 64}: no such staged or committed blob"),
]


@pytest.mark.parametrize(("reason", "check", "found", "words"), REFUSALS)
def test_a_refusal_names_the_check_and_what_is_stored(
    reason: Reason, check: Operation, found: object, words: str
) -> None:
    error = CommitRefused(reason, check, found=found)
    assert words in str(error)
    assert str(error).startswith("refused: ")
    assert "nothing of this commit was written" in str(error)
    assert (error.reason, error.check, error.found) == (reason, check, found)


def test_every_reason_is_explained() -> None:
    assert {reason for reason, *_ in REFUSALS} == set(get_args(Reason))


def test_long_names_are_cut_short() -> None:
    assert len(str(CommitRefused("absent", Absent("note", "k" * 4000), found=1))) < 250
    assert len(str(BlobNotFound("d" * 4000))) < 250


def test_facts_are_attributes() -> None:
    trimmed = LogTrimmed(after=1, floor=3, head=5)
    assert (trimmed.after, trimmed.floor, trimmed.head) == (1, 3, 5)
    assert (MissingExtra("redis", "redis").extra, BlobNotFound("d").digest) == ("redis", "d")


def test_only_transient_errors_are_retryable() -> None:
    retryable = {kind.__name__ for kind in KINDS if kind.retryable}
    assert {"StorageBusy", "StorageFull"} <= retryable
    assert not retryable & {"CommitRefused", "InvalidRequest", "StorageClosed", "StorageBroken", "CommitInDoubt"}


def test_plain_errors_can_be_sent_to_another_process() -> None:
    for kind in KINDS:
        if kind.__init__ is KeelboltError.__init__:
            error = kind("words")
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again)) == (kind, "words")
