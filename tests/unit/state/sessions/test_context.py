"""Version and hash of a session's context, and the keys of background results."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penguiflow.sessions import session as upstream
from pydantic import BaseModel, ConfigDict

from keelbolt.state.sessions.context import (
    ContextPatch,
    MergeStrategy,
    SessionContext,
    consumed,
    has_diverged,
    hash_context,
    judged,
    merged,
    result_of,
    storable,
    updated,
    visible_results,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
contexts = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), json_values, max_size=4)


@given(contexts)
def test_the_hash_is_that_of_sorted_json(llm_context: dict[str, Any]) -> None:
    """SHA-256 over json.dumps(ensure_ascii=False, sort_keys=True), the same as penguiflow's."""
    raw = json.dumps(llm_context, ensure_ascii=False, sort_keys=True)
    assert hash_context(llm_context) == hashlib.sha256(raw.encode()).hexdigest() == upstream._hash_context(llm_context)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", "\ud800"])
def test_a_context_that_is_not_json_has_no_hash(value: object) -> None:
    """This includes text that UTF-8 can't encode and a context that contains itself."""
    assert hash_context({"a": value}) is None
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert hash_context(loop) is None


@given(st.lists(st.tuples(st.none() | contexts, st.none() | contexts), max_size=6))
def test_each_update_increments_the_version(changes: list[tuple[dict[str, Any] | None, dict[str, Any] | None]]) -> None:
    """Each update increments the version by 1, and the hash is that of the new context."""
    context, other = SessionContext(), upstream.StreamingSession("s")
    for number, (llm, tool) in enumerate(changes, start=1):
        before = deepcopy(context)
        new = updated(context, llm_context=llm, tool_context=tool)
        assert context == before or "nan" in repr(before).lower(), "an update leaves the old context alone"
        context = new
        other.update_context(llm_context=llm, tool_context=tool)
        assert (context.version, context.context_hash) == (number, other.context_hash)
        assert context.version == other.context_version
    assert repr((context.llm_context, context.tool_context)) == repr(other.get_context())


def test_results_stored_in_the_context_are_moved_out() -> None:
    """Older programs stored them in the context; they are not part of the hash."""
    found = updated(SessionContext(), llm_context={"a": 1, "background_results": [{"task_id": "t", "summary": "s"}]})
    assert found.llm_context == {"a": 1}
    assert found.background_results["t"].summary == "s"
    assert found.context_hash == hash_context({"a": 1})


# ------------------------------------------------------------------------------------------------------------- merging


def patch(task_id: str = "t", **fields: Any) -> ContextPatch:
    return ContextPatch(task_id=task_id, **fields)


@pytest.mark.parametrize(
    ("version", "digest", "diverged"),
    [(None, None, False), (3, "h", False), (2, None, True), (None, "x", True), (3, "x", True), (3, "", False)],
)
def test_divergence(version: int | None, digest: str | None, *, diverged: bool) -> None:
    """A patch has diverged if its version or its hash differs from the session's."""
    context = SessionContext(version=3, context_hash="h")
    found = patch(source_context_version=version, source_context_hash=digest)
    assert has_diverged(found, context) is diverged
    assert judged(found, context).context_diverged is diverged
    assert found.context_diverged is False, "the caller's patch is left alone"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=10))
def test_append_adds_and_replace_replaces(merges: list[tuple[str, bool]]) -> None:
    """Appended results are stored by task; a replacing result replaces the previous one. Version and hash stay."""
    context = SessionContext(llm_context={"a": 1}, version=4, context_hash="h")
    appended: dict[str, int] = {}
    last: int | None = None
    for number, (task, replacing) in enumerate(merges):
        strategy = MergeStrategy.REPLACE if replacing else MergeStrategy.APPEND
        context = merged(context, result_of(patch(task), payload=number), strategy)
        if replacing:
            last = number
        else:
            appended[task] = number
    assert {task: result.payload for task, result in context.background_results.items()} == appended
    assert (context.background_result.payload if context.background_result else None) == last
    assert (context.version, context.context_hash, context.llm_context) == (4, "h", {"a": 1})


def test_consumed_results_are_removed() -> None:
    """Consumed results are removed from both places; other results stay."""
    context = merged(SessionContext(), result_of(patch("a")), MergeStrategy.APPEND)
    context = merged(context, result_of(patch("b")), MergeStrategy.APPEND)
    context = merged(context, result_of(patch("a")), MergeStrategy.REPLACE)
    assert set(visible_results(context)) == {"background_results", "background_result"}
    context, count = consumed(context, ["a", "unknown"])
    assert (count, list(context.background_results), context.background_result) == (2, ["b"], None)


def test_a_patch_equals_penguiflow_s() -> None:
    """A patch has the fields and defaults of penguiflow's, and makes the same result."""
    from penguiflow.sessions.models import ContextPatch as Theirs

    theirs = Theirs(task_id="t", digest=["a", "b"], facts={"x": 1}, artifacts=[{"id": 1}])
    ours = ContextPatch.model_validate(theirs.model_dump())
    assert ours.model_dump() == theirs.model_dump()
    expected = upstream._background_result_from_patch(theirs, payload={"p": 1}, group_id="g")
    assert result_of(ours, payload={"p": 1}, group_id="g").to_payload() == expected.to_payload()


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    number: int = 1


def test_models_in_sets_and_keys_can_be_stored() -> None:
    """A model becomes a dict, which neither a set nor a key can hold."""
    value = {"models": {Frozen()}, "plain": {1, 2}, Frozen(): "lost", "nested": frozenset({(Frozen(),)})}
    assert storable(value) == {"models": [{"number": 1}], "plain": {1, 2}, "nested": [({"number": 1},)]}
