"""Primitives are frozen and strict, and their error messages name the solution."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from keelbolt.errors import (
    InvalidInitialIdentityValue,
    InvalidInitialMediaValue,
    InvalidInitialMemoryValue,
    InvalidInitialMessageValue,
    InvalidInitialRetrievableValue,
    InvalidInitialThoughtValue,
    InvalidInitialToolCallValue,
    InvalidInitialValue,
    NotAMediaReader,
    NotASpoolReader,
    TokenizableEvaluatorInvalid,
)
from keelbolt.turns.primitives import (
    Identity,
    Media,
    Memory,
    Message,
    Retrievable,
    SpooledArtifact,
    Thought,
    Tokenizable,
    ToolCall,
    register_encoding,
    tool_call_checksum,
)
from keelbolt.turns.primitives.tool_call import canonical

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TIMES: dict[str, Any] = {"created_at": NOW, "updated_at": NOW}


class Bytes:
    def __init__(self, data: bytes = b"data") -> None:
        self.data = data
        self.calls = 0

    async def stream(self) -> AsyncIterator[bytes]:
        self.calls += 1
        yield self.data

    def byte_length(self) -> int:
        self.calls += 1
        return len(self.data)


class Lines:
    def __init__(self, text: str) -> None:
        self.text = text

    def line(self, index: int) -> str | None:
        lines = self.text.split("\n") if self.text else []
        return lines[index] if 0 <= index < len(lines) else None

    async def byte_length(self) -> int:
        return len(self.text.encode())

    def line_count(self) -> int:
        return len(self.text.split("\n")) if self.text else 0

    async def read_all(self) -> str:
        return self.text


def media(**fields: Any) -> Media:
    usual = {"kind": "image", "mime_type": "image/png", "filename": "a.png", "reader": Bytes()}
    return Media(**{**usual, "trust_tier": "first-party", "modality_hazard": "inert", **fields})


def call(**fields: Any) -> ToolCall:
    usual: dict[str, Any] = {"id": "c", "tool": "add", "args": {"a": 1}, "is_complete": False, **TIMES}
    return ToolCall(**{**usual, **fields})


DONE = {"is_complete": True, "results": "3", "completed_at": NOW}
MESSAGE = {"id": "m", "role": "user", "content": "hi", **TIMES}
MEMORY = {"id": "m", "content": "likes tea", "confidence": 0.5, "importance": 1, **TIMES}
THOUGHT = {"id": "t", "content": "hm", **TIMES}
CALL = {"id": "c", "tool": "add", "args": {}, **DONE, **TIMES}
KNOWN = {"id": "r", "content": "text", "trust_tier": "first-party", **TIMES}
MEDIA = {
    "kind": "image",
    "mime_type": "image/png",
    "filename": "a.png",
    "reader": Bytes(),
    "trust_tier": "first-party",
    "modality_hazard": "inert",
}
ENTRY = {"value": 1, "trust_tier": "first-party"}

ANY_WRONG: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "id is empty"),
    ({"id": 7}, "id is a str, not int"),
    ({"created_at": True}, "created_at"),
    ({"created_at": "yesterday"}, "write it as"),
    ({"created_at": float("nan")}, "not a time"),
    ({"created_at": 1e30}, "not a time"),
    ({"updated_at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
    ({"updated_at": "2026-01-01T00:00:00"}, "no time zone"),
    ({"colour": "red"}, "'colour'"),
]

WRONG: list[tuple[type, type[InvalidInitialValue], dict[str, Any], dict[str, Any], str]] = [
    *[
        (kind, error, usual, change, word)
        for kind, error, usual in [
            (Message, InvalidInitialMessageValue, MESSAGE),
            (Memory, InvalidInitialMemoryValue, MEMORY),
            (Thought, InvalidInitialThoughtValue, THOUGHT),
            (ToolCall, InvalidInitialToolCallValue, CALL),
            (Retrievable, InvalidInitialRetrievableValue, KNOWN),
        ]
        for change, word in ANY_WRONG
    ],
    (Message, InvalidInitialMessageValue, MESSAGE, {"role": "system"}, "role is one of user, assistant, not 'system'"),
    (Message, InvalidInitialMessageValue, MESSAGE, {"content": None}, "content, attachments or both"),
    (Message, InvalidInitialMessageValue, MESSAGE, {"content": ""}, "content is empty"),
    (Message, InvalidInitialMessageValue, MESSAGE, {"content": 5}, "a str or a Tokenizable, not int"),
    (Message, InvalidInitialMessageValue, MESSAGE, {"attachments": "a.png"}, "a list of Media"),
    (Message, InvalidInitialMessageValue, MESSAGE, {"attachments": ["a.png"]}, "holds Media, not str"),
    (Message, InvalidInitialMessageValue, MESSAGE, {"identity": ""}, "identity is"),
    (Message, InvalidInitialMessageValue, MESSAGE, {"identity": 5}, "identity is"),
    *[
        (Memory, InvalidInitialMemoryValue, MEMORY, {field: value}, f"{field} is a number from 0 to 1")
        for field in ("confidence", "importance")
        for value in (-0.1, 1.1, float("nan"), True, "1", None)
    ],
    (Memory, InvalidInitialMemoryValue, MEMORY, {"content": ""}, "content is empty"),
    (Thought, InvalidInitialThoughtValue, THOUGHT, {"content": ""}, "content is empty"),
    (Thought, InvalidInitialThoughtValue, THOUGHT, {"payload": {"x": 1}}, "needs replay_compatibility"),
    (Thought, InvalidInitialThoughtValue, THOUGHT, {"payload": 1, "replay_compatibility": ""}, "is empty"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"tool": ""}, "tool is empty"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"args": "[1]"}, "args is a dict"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"args": "{"}, "not JSON"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"args": [1]}, "args is a dict"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"args": {"a": {1}}}, "args.a is set, which is not JSON"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"args": {1: 1}}, "keys of JSON are strings"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"args": {"a": [float("inf")]}}, "args.a[0] is inf"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"checksum": ""}, "checksum is empty"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"is_complete": 1}, "True or False"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"is_error": None}, "True or False"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"results": None}, "pass is_complete=False"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"results": []}, "empty list"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"results": ["a"]}, "not of str"),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"results": 5}, "a str or a Tokenizable"),
    (
        ToolCall,
        InvalidInitialToolCallValue,
        CALL,
        {"results": [media(), SpooledArtifact(Lines(""))]},
        "not of Media and SpooledArtifact",
    ),
    (ToolCall, InvalidInitialToolCallValue, CALL, {"payload": 1}, "needs replay_compatibility"),
    (Retrievable, InvalidInitialRetrievableValue, KNOWN, {"trust_tier": "trusted"}, "first-party, third-party-public"),
    (Retrievable, InvalidInitialRetrievableValue, KNOWN, {"trust_tier": None}, "trust_tier is one of"),
    (Retrievable, InvalidInitialRetrievableValue, KNOWN, {"content": ""}, "content is empty"),
    (Retrievable, InvalidInitialRetrievableValue, KNOWN, {"content": Lines("")}, "a str or a Tokenizable"),
    (Retrievable, InvalidInitialRetrievableValue, KNOWN, {"score": 2}, "from 0 to 1"),
    (Retrievable, InvalidInitialRetrievableValue, KNOWN, {"source": ""}, "source is empty"),
    (Media, InvalidInitialMediaValue, MEDIA, {"id": ""}, "id is empty"),
    (Media, InvalidInitialMediaValue, MEDIA, {"kind": "text"}, "kind is one of"),
    (Media, InvalidInitialMediaValue, MEDIA, {"mime_type": ""}, "mime_type is empty"),
    (Media, InvalidInitialMediaValue, MEDIA, {"filename": None}, "filename is a str"),
    (Media, InvalidInitialMediaValue, MEDIA, {"trust_tier": "me"}, "trust_tier is one of"),
    (Media, InvalidInitialMediaValue, MEDIA, {"modality_hazard": ""}, "modality_hazard is one of"),
    (Media, InvalidInitialMediaValue, MEDIA, {"size": 5}, "'size'"),
    (Media, InvalidInitialMediaValue, MEDIA, {"stash": [1]}, "stash is a dict"),
    (Media, InvalidInitialMediaValue, MEDIA, {"stash": {"ocr": "text"}}, "stash entry 'ocr'"),
    (Media, InvalidInitialMediaValue, MEDIA, {"stash": {"ocr": {"value": 1}}}, "trust_tier of stash entry 'ocr'"),
    (Media, InvalidInitialMediaValue, MEDIA, {"stash": {"ocr": {**ENTRY, "x": 1}}}, "unknown key 'x'"),
    (Media, InvalidInitialMediaValue, MEDIA, {"stash": {"ocr": {**ENTRY, "derived_from_media": 1}}}, "a str"),
    (Identity, InvalidInitialIdentityValue, {"representation": "Ann"}, {"identifier": ""}, "identifier is empty"),
    (Identity, InvalidInitialIdentityValue, {"representation": "Ann"}, {"identifier": True}, "a str or an int"),
    (Identity, InvalidInitialIdentityValue, {"identifier": 5}, {"representation": ""}, "representation is empty"),
]


@pytest.mark.parametrize(("kind", "error", "usual", "change", "word"), WRONG)
def test_invalid_values_are_refused_with_their_field(
    kind: type, error: type[InvalidInitialValue], usual: dict[str, Any], change: dict[str, Any], word: str
) -> None:
    kind(**{**usual, **({} if kind is not Identity else {"identifier": 1, "representation": "x"})})
    with pytest.raises(error) as refused:
        kind(**{**usual, **change})
    assert word in str(refused.value)
    assert str(refused.value).startswith(f"{kind.__name__}: ")
    assert (refused.value.status, refused.value.fatal) == (500, True)


@pytest.mark.parametrize(
    ("kind", "usual", "optional"),
    [
        (Message, MESSAGE, {"content"}),
        (Memory, MEMORY, set()),
        (Thought, THOUGHT, {"content"}),
        (ToolCall, CALL, {"results", "completed_at"}),
        (Retrievable, KNOWN, set()),
        (Media, MEDIA, set()),
    ],
)
def test_missing_fields_are_named(kind: type, usual: dict[str, Any], optional: set[str]) -> None:
    for name in usual.keys() - {"created_at", "updated_at", "completed_at", "is_complete"}:
        with pytest.raises(InvalidInitialValue) as refused:
            kind(**{field: value for field, value in usual.items() if field != name})
        assert name in str(refused.value)
    with pytest.raises(InvalidInitialValue, match="given by name"):
        kind("m")


def test_primitives_are_frozen_and_known_by_identity() -> None:
    one, other = Message(**MESSAGE), Message(**MESSAGE)
    assert one != other
    assert {one, other, one} == {one, other}
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.id = "n"  # type: ignore[misc]
    changed = dataclasses.replace(one, content=Tokenizable("changed"))
    assert (str(changed.content), changed.created_at, changed.id) == ("changed", NOW, "m")


def test_times_are_text_milliseconds_or_datetimes() -> None:
    for value in ("2026-01-02T03:04:05Z", int(NOW.timestamp() * 1000), NOW, "2026-01-02T05:04:05+02:00"):
        assert Message(**{**MESSAGE, "created_at": value}).created_at == NOW
    east = NOW.astimezone(timezone(timedelta(hours=2)))
    assert Message(**{**MESSAGE, "created_at": east}).created_at.utcoffset() == timedelta(hours=2)


def test_the_default_identity_of_a_message_is_its_role() -> None:
    assert str(Message(**MESSAGE).identity.representation) == "user"
    ann = Identity(identifier=7, representation="Ann")
    assert Message(**MESSAGE, identity=ann).identity is ann
    assert Message(**MESSAGE, identity="Ann").identity.identifier == "Ann"
    assert Message(**{**MESSAGE, "content": None}, attachments=[media()]).attachments[0].kind == "image"


def test_a_thought_may_be_empty_with_a_payload_only() -> None:
    thought = Thought(id="t", payload={"sig": b"x"}, replay_compatibility="some-model", **TIMES)
    assert (str(thought.content), str(thought.identity.representation)) == ("", "assistant")
    assert Thought(**THOUGHT, payload=None).payload is None


def test_a_pending_call_needs_no_results_and_keeps_its_own_arguments() -> None:
    args = {"a": [1]}
    pending = call(args=args)
    args["a"].append(2)
    assert (pending.results, pending.completed_at, pending.args) == (None, None, {"a": [1]})
    assert call(args='{"a": [1]}').checksum == pending.checksum == tool_call_checksum("add", {"a": [1]})
    done = dataclasses.replace(pending, is_complete=True, results=(media(), media()), completed_at=NOW)
    assert isinstance(done.results, tuple)
    assert str(call(results="").results) == ""
    ended = pending.completed("3", at=NOW, is_error=True)
    assert (str(ended.results), ended.is_error, ended.completed_at) == ("3", True, NOW)
    assert (ended.checksum, ended.created_at) == (pending.checksum, pending.created_at)
    wrongs: list[tuple[Any, Any]] = [([], NOW), ("3", "soon")]
    for results, at in wrongs:
        with pytest.raises(InvalidInitialToolCallValue):
            pending.completed(results, at=at)


def test_the_checksum_follows_the_rules_of_javascript() -> None:
    value = {
        "b": [1.0, 1e21, 1e-7, -0.0, 2**53 + 1, 10**400],
        "\U0001f600": 1,
        "\uff5e": "\u2028\x7f\x01\ud800",
        "a": None,
    }
    assert canonical(value) == (
        '{"a":null,"b":[1,1e+21,1e-7,0,9007199254740992,null],"\U0001f600":1,"\uff5e":"\u2028\x7f\\u0001\\ud800"}'
    )
    assert canonical({"x": "\ud83d\ude00"}) == '{"x":"\U0001f600"}'
    with pytest.raises(ValueError, match="set is not JSON"):
        canonical({1})
    assert tool_call_checksum("add", {"a": 1.0}) == hashlib.sha256(b'{"args":{"a":1},"tool":"add"}').hexdigest()


async def test_media_is_a_pointer() -> None:
    reader = Bytes(b"abc")
    image = media(reader=reader, stash={"ocr": {**ENTRY, "derived_from_media": "m"}}, source="upload")
    assert image.to_json() == {
        "id": image.id,
        "kind": "image",
        "mimeType": "image/png",
        "filename": "a.png",
        "source": "upload",
        "trustTier": "first-party",
        "modalityHazard": "inert",
        "stash": {"ocr": {"value": 1, "trustTier": "first-party", "derivedFromMedia": "m"}},
    }
    assert reader.calls == 0
    assert "reader" not in repr(image)
    assert [await image.as_bytes() for _ in range(2)] == [b"abc", b"abc"]
    assert (await image.as_base64(), await image.byte_length()) == ("YWJj", 3)
    with pytest.raises(NotAMediaReader):
        media(reader=b"abc")


@pytest.mark.parametrize(
    ("factory", "tier"),
    [
        (Media.user_attachment, "third-party-private"),
        (Media.tool_generated, "first-party"),
        (Media.retrieved_public, "third-party-public"),
        (Media.retrieved_private, "third-party-private"),
    ],
)
def test_factories_set_tier_and_hazard(factory: Any, tier: str) -> None:
    fields = {"mime_type": "x/y", "filename": "f", "reader": Bytes()}
    assert [factory(kind=kind, **fields).trust_tier for kind in ("image", "document")] == [tier, tier]
    assert factory(kind="document", **fields).modality_hazard == "extractable-instructions"
    assert factory(kind="audio", **fields).modality_hazard == "opaque-perceptual"
    with pytest.raises(InvalidInitialMediaValue):
        factory(kind="text", **fields)


def test_text_counts_its_tokens_until_it_changes() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[str]:
        asked.append(text)
        return text.split()

    text = Tokenizable("one two three")
    assert [text.estimate_tokens(encode) for _ in range(2)] == [3, 3]
    assert asked == ["one two three"]
    register_encoding("words", encode)
    assert text.estimate_tokens("words") == 3
    text.set("four")
    assert (text.estimate_tokens(encode), text.estimate_tokens("unheard of"), str(text)) == (1, 1, "four")
    assert Tokenizable("12345").estimate_tokens(lambda _text: 1 // 0) == 2
    assert (Tokenizable("x", key="k").copy().key, Tokenizable("x").to_json()) == ("k", "x")
    for wrong in (None, 5, lambda: "x"):
        with pytest.raises(TokenizableEvaluatorInvalid, match="pass a str"):
            Tokenizable(wrong)  # type: ignore[arg-type]


async def test_an_artifact_reads_lines() -> None:
    artifact = SpooledArtifact(Lines("a1\nb\r\na2\n"))
    assert await artifact.head(1) == ["a1"]
    assert await artifact.tail(2) == ["a2", ""]
    assert await artifact.grep("^a") == ["a1", "a2"]
    assert await artifact.cat(-5, 2) == ["a1", "b\r"]
    assert await artifact.cat(3, 99) == [""]
    assert await artifact.cat(9) == await artifact.tail(0) == await artifact.head(-1) == []
    assert (await artifact.line_count(), await artifact.byte_length()) == (4, 9)
    assert await artifact.as_string() == "a1\nb\r\na2\n"
    assert await artifact.estimate_tokens() == 3
    known = Retrievable(**{**KNOWN, "content": artifact})
    assert (await known.content_string(), await known.estimate_tokens()) == ("a1\nb\r\na2\n", 3)
    with pytest.raises(NotASpoolReader, match="line, byte_length"):
        SpooledArtifact("text")  # type: ignore[arg-type]


def test_texts_can_be_changed_afterwards() -> None:
    """A primitive keeps the text that it got."""
    text = Tokenizable("before", key="k")
    kept = [
        Message(**{**MESSAGE, "content": text}).content,
        Memory(**{**MEMORY, "content": text}).content,
        Thought(**{**THOUGHT, "content": text}).content,
        Retrievable(**{**KNOWN, "content": text}).content,
        Identity(identifier=1, representation=text).representation,
    ]
    text.set("after")
    assert [(str(each), each.key) for each in kept if isinstance(each, Tokenizable)] == [("before", "k")] * 5
