"""Logic of the page: schemas, differences, commands, owners of partitions."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def page(agent: Stage, open_page: OpenPage) -> Page:
    return await open_page(agent.at())


async def called(page: Page, module: str, name: str, *arguments: Any) -> Any:
    """Return the result of a function of a module."""
    program = "async ([module, name, given]) => (await import(`./js/${module}.js`))[name](...given)"
    return await page.evaluate(program, [module, name, list(arguments)])


async def test_values_are_checked_against_schemas(page: Page) -> None:
    cases: list[tuple[Any, dict[str, Any], list[str]]] = [
        ({"a": 1}, {"type": "object", "properties": {"a": {"type": "string"}}}, ["a is integer, but must be string"]),
        ({}, {"type": "object", "required": ["a"]}, ["a is required"]),
        ({"b": 1}, {"type": "object", "additionalProperties": False}, ["b is not allowed"]),
        (None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, []),
        (3, {"anyOf": [{"type": "integer", "maximum": 2}, {"type": "null"}]}, ["the input is more than 2"]),
        ([1, "x"], {"type": "array", "items": {"type": "integer"}}, ["[1] is string, but must be integer"]),
        ("abc", {"type": "string", "pattern": "^[0-9]+$"}, ["the input does not match ^[0-9]+$"]),
        (
            {"c": {"d": 1}},
            {"properties": {"c": {"$ref": "#/$defs/C"}}, "$defs": {"C": {"required": ["e"]}}},
            ["c.e is required"],
        ),
        (2.0, {"type": "integer"}, []),
        (1, {"type": "number"}, []),
        ("x", {"enum": ["y", 1]}, ['the input is not one of "y", 1']),
        ("x", {"pattern": "("}, []),  # an invalid pattern matches everything
    ]
    for value, schema, wanted in cases:
        found = await called(page, "schema", "validate", value, schema)
        assert [f"{each['path']} {each['text']}" for each in found] == wanted, (value, schema)


async def test_differences_are_named_by_their_paths(page: Page) -> None:
    before = {"same": 1, "gone": 2, "list": [1, 2], "deep": {"x": "old"}}
    after = {"same": 1, "new": 3, "list": [1, 2, 3], "deep": {"x": "new"}}
    found = await called(page, "diff", "diff", before, after)
    assert {(each["path"], each["kind"]) for each in found} == {
        ("gone", "removed"),
        ("new", "added"),
        ("list[2]", "added"),
        ("deep.x", "changed"),
    }


@pytest.mark.parametrize(
    ("partition", "query"),
    [
        ("alice", {"owner": "alice"}),
        ("acme/alice", {"tenant": "acme", "owner": "alice"}),
        ("acme/", {"tenant": "acme", "owner": ""}),
        ("alice//acme", {"owner": "alice", "askedTenant": "acme"}),
        ("%C3%A5ke", {"owner": "åke"}),
        ("~anonymous", None),
        ("~state/acme", None),
    ],
)
async def test_partitions_are_shown_as_their_owners(page: Page, partition: str, query: dict[str, str] | None) -> None:
    assert (await called(page, "partition", "parsePartition", partition))["query"] == query


async def test_secrets_are_recognised_by_their_names(page: Page) -> None:
    value = {
        "token": "eyJhbGciOiJIUzI1",
        "Tokens": ["Bearer 0123456789abcdef", "a", "longer than twelve 1"],
        "access_token": "b",
        "apiKey": "c",
        "tokens": 5,
        "nested": [{"clientSecret": "d"}],
        "text": "e",
    }
    masked = await called(page, "json", "masked", value)
    dots = "••••••••"
    assert masked == {
        "token": dots,
        "Tokens": [dots, "a", "longer than twelve 1"],
        "access_token": dots,
        "apiKey": dots,
        "tokens": 5,
        "nested": [{"clientSecret": dots}],
        "text": "e",
    }


async def test_a_field_called_token_that_is_no_secret_is_shown(page: Page) -> None:
    value = {"token": "harbour", "tokens": ["to", "be"], "nested": {"token": "internationalisation"}}
    assert await called(page, "json", "masked", value) == value


async def test_predicted_changes_are_read_from_an_approval(page: Page) -> None:
    change = {"action": "write", "target": "prod", "summary": "Replaces it", "before": 1}
    preview = {"changes": [change, {"action": 5}, None], "warnings": ["It is Friday", 5]}
    message = {"parts": [{"text": "x"}, {"data": {"approval": {"preview": preview}}}]}
    wanted = {"changes": [change], "warnings": ["It is Friday"]}
    assert await called(page, "changes", "previewOf", message) == wanted
    for odd in ({}, {"parts": [{"data": {"approval": {"preview": {"changes": 5}}}}]}):
        assert await called(page, "changes", "previewOf", odd) == {"changes": [], "warnings": []}


async def test_starts_and_ends_of_a_flow_are_paired(page: Page) -> None:
    def entry(seq: int, kind: str, node: str, ts: float) -> dict[str, Any]:
        data = {"kind": kind, "node_name": node, "node_id": node, "ts": ts, "payload": {}}
        return {"seq": seq, "at": "2026-01-01T00:00:00Z", "data": data, "of": "flow"}

    entries = [
        entry(1, "node_start", "fetch", 1.0),
        entry(2, "node_start", "rank", 1.5),
        entry(3, "node_success", "fetch", 2.0),
        entry(4, "node_error", "rank", 3.0),
        entry(5, "node_start", "write", 3.5),
    ]
    bars = await called(page, "trace_bars", "traceBars", entries)
    assert [(bar["label"], bar["from"], bar["to"], bar["tone"], bar.get("open", False)) for bar in bars] == [
        ("fetch", 1000, 2000, "good", False),
        ("rank", 1500, 3000, "bad", False),
        ("write", 3500, 3500, "busy", True),
    ]
