"""Primitives as JSON, with descriptors instead of readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keelbolt.errors import InvalidValue, ReaderNotDescribable
from keelbolt.turns.codec.kinds import TYPES, Kind, kind_of
from keelbolt.turns.codec.resolvers import ArtifactTypes, Resolvers
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
)
from keelbolt.turns.primitives.checks import Wrong, plain
from keelbolt.turns.readers import Descriptor, MediaReader, SpoolReader, described

Primitive = Message | Memory | Thought | ToolCall | Retrievable | Tokenizable
Data = dict[str, Any]
Describe = Callable[[MediaReader | SpoolReader], Descriptor]


def readers_of(value: Primitive | str) -> Iterator[tuple[MediaReader | SpoolReader, bool]]:
    """Yield every reader in the value, and whether it reads media (otherwise spooled text)."""
    if isinstance(value, Message):
        for media in value.attachments:
            yield media.reader, True
    elif isinstance(value, ToolCall):
        for item in value.results if isinstance(value.results, tuple) else (value.results,):
            if isinstance(item, Media):
                yield item.reader, True
            elif isinstance(item, SpooledArtifact):
                yield item.reader, False
    elif isinstance(value, Retrievable) and isinstance(value.content, SpooledArtifact):
        yield value.content.reader, False


def describe(reader: MediaReader | SpoolReader) -> Descriptor:
    """Return the reader's descriptor. Raise ReaderNotDescribable if it has none."""
    found = described(reader)
    if found is None:
        raise ReaderNotDescribable(
            f"{type(reader).__name__} has no describe(), so its bytes could not be found again; store them first"
        )
    return found


class TurnCodec:
    """Encodes to plain JSON values, and decodes them through the constructors, which validate again."""

    def __init__(self, resolvers: Resolvers | None = None, artifacts: ArtifactTypes | None = None) -> None:
        self.resolvers = resolvers if resolvers is not None else Resolvers()
        self.artifacts = artifacts if artifacts is not None else ArtifactTypes()

    def encode(self, value: Primitive | str, describe: Describe = describe) -> Data:
        """Return the value as JSON, without None; ``describe`` returns the descriptor of each of its readers."""
        if isinstance(value, str | Tokenizable):
            return {"text": _text(value)}
        kind = kind_of(value)
        data = {name: found for name in _PLAIN[kind] if (found := getattr(value, name)) is not None}
        if "payload" in data:
            data["payload"] = _json("payload", data["payload"])
        for name in _TIMES[kind]:
            at = getattr(value, name)
            if at is not None:
                data[name] = at.isoformat()
        for name in _SPECIAL[kind]:
            part = getattr(value, name)
            if part is not None and part != ():
                data[name] = self._encode_part(part, describe)
        return data

    def decode(self, kind: Kind, data: Mapping[str, Any], resolvers: Resolvers | None = None) -> Any:
        """Return the decoded value; ``resolvers`` (default: the codec's own) open its readers."""
        if kind == "standing_instruction":
            return _tokenizable(data["text"])
        opened = resolvers if resolvers is not None else self.resolvers
        fields = dict(data)
        for name in _SPECIAL[kind]:
            if name in fields:
                fields[name] = self._decode_part(fields[name], opened)
        return TYPES[kind](**fields)

    # ------------------------------------------------------------------------------------------------------- parts

    def _encode_part(self, part: Any, describe: Describe) -> Any:
        if isinstance(part, Tokenizable):
            return _text(part)
        if isinstance(part, Identity):
            return _identity(part)
        if isinstance(part, tuple):
            return [self._encode_part(item, describe) for item in part]
        if isinstance(part, SpooledArtifact):
            return {"artifact": self.artifacts.name_of(part), "reader": dict(describe(part.reader))}
        assert isinstance(part, Media)
        media = {name: getattr(part, name) for name in _MEDIA}
        return {"media": media, "stash": _json("stash", part.stash.all()), "reader": dict(describe(part.reader))}

    def _decode_part(self, part: Any, resolvers: Resolvers) -> Any:
        if isinstance(part, str):
            return part  # text, or an identity whose representation is its identifier
        if isinstance(part, list):
            return [self._decode_part(item, resolvers) for item in part]
        if "text" in part:
            return _tokenizable(part)
        if "identifier" in part:
            return Identity(identifier=part["identifier"], representation=_tokenizable(part["representation"]))
        if "artifact" in part:
            return self.artifacts.make(part["artifact"], resolvers.open(part["reader"], media=False))
        return Media(**part["media"], stash=part["stash"], reader=resolvers.open(part["reader"], media=True))


def _json(name: str, value: Any) -> Any:
    """Return the value if it survives a JSON round trip unchanged; raise InvalidValue instead of converting it."""
    try:
        return plain(name, value)
    except Wrong as wrong:
        raise InvalidValue(f"the value can't be stored: {wrong}") from None
    except RecursionError:
        raise InvalidValue(f"the value can't be stored: {name} is nested too deep or contains itself") from None


def _identity(identity: Identity) -> Any:
    shown = identity.representation
    if shown.key is None and str(shown) == identity.identifier:
        return identity.identifier
    return {"identifier": identity.identifier, "representation": _text(shown)}


def _text(value: str | Tokenizable) -> str | dict[str, str]:
    if isinstance(value, Tokenizable) and value.key is not None:
        return {"text": str(value), "key": value.key}
    return str(value)


def _tokenizable(data: str | Mapping[str, str]) -> Tokenizable:
    return Tokenizable(data) if isinstance(data, str) else Tokenizable(data["text"], key=data["key"])


_PLAIN: dict[Kind, tuple[str, ...]] = {
    "message": ("id", "role"),
    "memory": ("id", "confidence", "importance"),
    "thought": ("id", "payload", "replay_compatibility"),
    "tool_call": (
        "id",
        "tool",
        "args",
        "checksum",
        "is_complete",
        "is_error",
        "payload",
        "replay_compatibility",
        "from_artifact_tool",
        "inline",
    ),
    "retrievable": ("id", "trust_tier", "source", "kind", "score"),
}
_TIMES: dict[Kind, tuple[str, ...]] = {
    "message": ("created_at", "updated_at"),
    "memory": ("created_at", "updated_at"),
    "thought": ("created_at", "updated_at"),
    "tool_call": ("created_at", "updated_at", "completed_at"),
    "retrievable": ("created_at", "updated_at"),
}
_SPECIAL: dict[Kind, tuple[str, ...]] = {
    "message": ("content", "attachments", "identity"),
    "memory": ("content",),
    "thought": ("content", "identity"),
    "tool_call": ("results",),
    "retrievable": ("content",),
}
_MEDIA = ("id", "kind", "mime_type", "filename", "source", "trust_tier", "modality_hazard")
