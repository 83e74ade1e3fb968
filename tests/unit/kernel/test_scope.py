"""A scope has the kernel's methods, and passes its own partition to each."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import keelbolt
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.hints import LogTopic
from keelbolt.kernel.logs import Append, Draft
from keelbolt.kernel.records import Collection, Insert, Query
from keelbolt.kernel.scope import Scope
from keelbolt.kernel.urls import open_storage
from keelbolt.kernel.work import Enqueue

VERBS = [
    name
    for name, method in inspect.getmembers(Kernel, inspect.isfunction)
    if "partition" in inspect.signature(method).parameters and name != "scoped"
]


class Recorder:
    """Replaces the kernel, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            self.calls.append((name, args, named))
            return self._answer() if inspect.iscoroutinefunction(getattr(Kernel, name)) else "answer"

        return call

    async def _answer(self) -> str:
        return "answer"


def test_every_method_of_a_partition_exists() -> None:
    assert {"commit", "get", "find", "read_log", "tail", "work", "stage_blob"} <= set(VERBS)
    assert {name for name, _ in inspect.getmembers(Scope, inspect.isfunction) if name[0] != "_"} == {*VERBS, "watch"}


@pytest.mark.parametrize("name", VERBS)
async def test_a_method_passes_all_arguments(name: str) -> None:
    """A method has the parameters and defaults of the kernel's, and passes the partition before them."""
    recorder = Recorder()
    scope = Scope(recorder, "mine")  # type: ignore[arg-type]
    theirs = list(inspect.signature(getattr(Kernel, name)).parameters.values())[2:]
    ours = list(inspect.signature(getattr(Scope, name)).parameters.values())[1:]
    assert [(one.name, one.kind, one.default) for one in ours] == [(one.name, one.kind, one.default) for one in theirs]

    positional = [one.name for one in ours if one.kind in (one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL)]
    named = {one.name: f"given {one.name}" for one in ours if one.kind is one.KEYWORD_ONLY}
    answer = getattr(scope, name)(*positional, **named)
    if inspect.isawaitable(answer):
        answer = await answer
    assert recorder.calls == [(name, ("mine", *positional), named)]
    assert answer == "answer"


async def test_a_scope_sees_only_its_partition() -> None:
    async with open_storage("memory:", declare=[Collection("note")]) as kernel:
        mine, theirs = kernel.scoped("mine"), kernel.scoped("theirs")
        await mine.commit(Insert("note", "a", b"1"), Append("log", "a", (Draft("x", b""),)), Enqueue("jobs", "a"))
        assert mine.partition == "mine"
        assert (await mine.get("note", "a")) is not None
        assert (await mine.log_state("log", "a")).head == 1
        assert (await mine.work("jobs", "a")) is not None
        blob = await mine.stage_blob(b"bytes")
        assert await (await mine.open_blob(blob.digest)).read() == b"bytes"

        assert (await theirs.get("note", "a")) is None
        assert (await theirs.log_state("log", "a")).head == 0
        assert (await theirs.work("jobs", "a")) is None
        with mine.watch("log", "a") as watch:
            assert watch.topic == LogTopic("mine", "log", "a")
            await theirs.commit(Append("log", "a", (Draft("x", b""),)))
            assert await watch.wait(0) is False
            await mine.commit(Append("log", "a", (Draft("x", b""),)))
            assert await watch.wait(0) is True
        assert [entry.seq async for entry in _first(mine, 2)] == [1, 2]
        with pytest.raises(Exception, match="no index"):
            await mine.find(Query("note"))


async def test_scopes_of_the_same_kernel_and_partition_are_equal() -> None:
    async with open_storage("memory:") as one, open_storage("memory:") as other:
        assert one.scoped("a") == one.scoped("a")
        assert len({one.scoped("a"), one.scoped("a"), one.scoped("b"), other.scoped("a")}) == 3


@pytest.mark.parametrize(
    ("prefix", "after", "found"),
    [
        ("", "", ["a", "a%", "a%20/x", "a/", "a/x", "b"]),
        ("", "a/", ["a/x", "b"]),
        ("a/", "", ["a/", "a/x"]),  # the prefix itself is a partition, too
        ("a/", "a/", ["a/x"]),
        ("a%2F", "", []),
    ],
)
async def test_scopes_go_through_partitions_in_order(prefix: str, after: str, found: list[str]) -> None:
    async with open_storage("memory:", declare=[Collection("note")]) as kernel:
        for name in ("b", "a/x", "a/", "a", "a%20/x", "a%"):
            await kernel.commit(name, Insert("note", "1", b""))
        assert [scope.partition async for scope in kernel.scopes(prefix=prefix, after=after)] == found


async def test_a_claim_has_the_scope_of_its_item() -> None:
    async with open_storage("memory:") as kernel:
        await kernel.commit("mine", Enqueue("jobs", "a"))
        (claim,) = await kernel.claim("jobs", "w")
        assert claim.scope == kernel.scoped("mine")
        await claim.scope.commit(claim.complete())


async def _first(scope: Scope, count: int) -> Any:
    async for entry in scope.tail("log", "a"):
        yield entry
        if entry.seq == count:
            return


# Code that handles partitions by name. All other code above the kernel holds or receives a `Scope`.
NAMES = {
    "apcore:TaskStoreStorage.list_owned": "the user's own storage gets the name of an owner",
    "operations:sees": "decides by the name of a partition which owner it belongs to",
    "state:StoreContext.__init__": "a store has no kernel before it is opened",
    "state:StateSweeper.__init__": "a store has no kernel before it is opened",
    "state:StateWriter.loss": "writes that wait, or are spooled to a file, name their partition",
    "state:StateWrite": "writes that wait, or are spooled to a file, name their partition",
    "tasks:MirrorKernel._refresh_context": "it is a kernel",
    "tasks:MirrorKernel.commit": "it is a kernel",
    "tasks:MirrorKernel.get": "it is a kernel",
    "tasks:ListsOwned.list_owned": "the user's own storage gets the name of an owner",
    "tasks:owned_key": "the user's own storage gets ids that name an owner",
    "testing:KernelLink.scoped": "it stands for a kernel",
}


def test_nothing_above_the_kernel_takes_a_partition() -> None:
    """No parameter and no field has this name, except those listed above."""
    source = Path(keelbolt.__file__).parent
    found = set()
    for path in source.rglob("*.py"):
        place, text = path.relative_to(source), path.read_text()
        if place.parts[0] not in ("kernel", "conformance") and "partition: " in text:
            found |= {f"{place.parts[0]}:{name}" for name in _taking(ast.parse(text), ())}
    assert found == set(NAMES)


def _taking(node: ast.AST, outer: tuple[str, ...]) -> Iterator[str]:
    """Return the functions with a parameter, and the classes with a field, named partition."""
    for child in ast.iter_child_nodes(node):
        inner = outer
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*outer, child.name)
        match child:
            case ast.arguments():
                if any(each.arg == "partition" for each in (*child.posonlyargs, *child.args, *child.kwonlyargs)):
                    yield ".".join(outer)
            case ast.AnnAssign(target=ast.Name(id="partition")) if isinstance(node, ast.ClassDef):
                yield ".".join(outer)
            case _:
                pass
        yield from _taking(child, inner)
