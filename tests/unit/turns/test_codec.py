"""Primitives as JSON and back, without storage."""

from __future__ import annotations

import json

import pytest

from keelbolt.errors import InvalidInitialThoughtValue, InvalidValue, NoReaderResolver, ReaderNotDescribable
from keelbolt.turns import (
    ArtifactTypes,
    Media,
    Message,
    Resolvers,
    Retrievable,
    SpooledArtifact,
    Thought,
    Tokenizable,
    TurnCodec,
)
from keelbolt.turns.codec import kind_of
from keelbolt.turns.in_memory import InMemoryMediaReader, InMemorySpoolReader
from keelbolt.turns.primitives.content import MediaStashEntry
from keelbolt.turns.readers import Descriptor

AT = "2026-01-31T12:00:00Z"


class Named(InMemoryMediaReader):
    """A reader with a descriptor."""

    def describe(self) -> Descriptor:
        return Descriptor(tag="media:test", locator={"text": self._data.decode()})


class Table(SpooledArtifact):
    """A subclass of artifacts."""


def picture(reader: InMemoryMediaReader) -> Message:
    media = Media.user_attachment(kind="image", mime_type="image/png", filename="x.png", reader=reader)
    return Message(id="m", role="user", attachments=[media], created_at=AT, updated_at=AT)


def text(artifact: SpooledArtifact) -> Retrievable:
    return Retrievable(id="r", content=artifact, trust_tier="first-party", created_at=AT, updated_at=AT)


async def test_readers_are_encoded_as_descriptors() -> None:
    """The last registration of a tag is used; the JSON has no bytes."""
    resolvers = Resolvers()
    codec = TurnCodec(resolvers)
    data = json.loads(json.dumps(codec.encode(picture(Named(b"here")))))
    with pytest.raises(NoReaderResolver, match="media:test") as raised:
        codec.decode("message", data)
    assert (raised.value.code, raised.value.status) == ("E_NO_READER_RESOLVER", 422)
    resolvers.spool("media:test", lambda _locator: None)
    with pytest.raises(NoReaderResolver):
        codec.decode("message", data)
    resolvers.media("media:test", lambda _locator: None)
    resolvers.media("media:test", lambda locator: Named(locator["text"].encode()))
    [found] = codec.decode("message", data).attachments
    assert await found.as_bytes() == b"here"


def test_readers_without_a_descriptor_are_refused() -> None:
    with pytest.raises(ReaderNotDescribable) as raised:
        TurnCodec().encode(picture(InMemoryMediaReader(b"")))
    assert (raised.value.code, raised.value.status) == ("E_READER_NOT_DESCRIBABLE", 422)


def test_artifacts_are_stored_by_registered_name() -> None:
    """A class is stored by its registered name, not by its import path."""
    artifacts = ArtifactTypes()
    codec = TurnCodec(artifacts=artifacts)

    def describe(_reader: object) -> Descriptor:
        return Descriptor(tag="spool:test", locator=None)

    with pytest.raises(InvalidValue, match="Table"):
        codec.encode(text(Table(InMemorySpoolReader(b""))), describe)
    artifacts.register("table", Table)
    data = codec.encode(text(Table(InMemorySpoolReader(b""))), describe)
    assert data["content"]["artifact"] == "table"
    codec.resolvers.spool("spool:test", lambda _locator: InMemorySpoolReader(b""))
    assert type(codec.decode("retrievable", data).content) is Table
    with pytest.raises(NoReaderResolver, match="table"):
        TurnCodec(codec.resolvers).decode("retrievable", data)


def test_instructions_are_encoded_as_text() -> None:
    codec = TurnCodec()
    assert codec.encode("be kind") == {"text": "be kind"}
    found = codec.decode("standing_instruction", codec.encode(Tokenizable("be brief", key="style")))
    assert (str(found), found.key) == ("be brief", "style")


def test_values_that_are_not_json_are_refused() -> None:
    """Converting such values would change them."""
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(InvalidInitialThoughtValue, match="payload can't be copied"):
        Thought(id="t", payload=circle, replay_compatibility="p", created_at=AT, updated_at=AT)
    wrong: list[object] = [{1: 2}, [{"a": float("nan")}], {"a": {1, 2}}, b"x"]
    for payload in wrong:
        opaque = Thought(id="t", payload=payload, replay_compatibility="p", created_at=AT, updated_at=AT)
        with pytest.raises(InvalidValue, match="payload"):
            TurnCodec().encode(opaque)
        caption: MediaStashEntry = {"value": payload, "trust_tier": "first-party"}
        fields = {"mime_type": "image/png", "filename": "x.png", "reader": Named(b""), "stash": {"caption": caption}}
        media = Media.user_attachment(kind="image", **fields)
        with pytest.raises(InvalidValue, match=r"stash\.caption\.value|stash is nested too deep"):
            TurnCodec().encode(Message(id="m", role="user", attachments=[media], created_at=AT, updated_at=AT))


def test_other_types_are_refused() -> None:
    with pytest.raises(InvalidValue):
        kind_of(7)
