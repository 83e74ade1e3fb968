"""Converts primitives to JSON and back: `TurnCodec`. JSON never contains bytes, only descriptors of their readers.

The program registers the functions that open readers from descriptors, and the artifact classes, so that stored data
can't make it import or open anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keelbolt.errors import InvalidValue, NoReaderResolver, ReaderNotDescribable
from keelbolt.turns.events import KINDS, Kind
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
from keelbolt.turns.primitives.values import Wrong, plain
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


# ---------------------------------------------------------------------------------------------------------------- kinds


__all__ = ["KINDS", "PER_TURN", "PLURALS", "TYPES", "Kind", "kind_of"]

TYPES: dict[Kind, type] = {
    "message": Message,
    "memory": Memory,
    "thought": Thought,
    "tool_call": ToolCall,
    "retrievable": Retrievable,
}

PLURALS: dict[Kind, str] = {
    "message": "messages",
    "memory": "memories",
    "thought": "thoughts",
    "tool_call": "tool_calls",
    "retrievable": "retrievables",
    "standing_instruction": "standing_instructions",
}

PER_TURN: frozenset[Kind] = frozenset({"thought", "tool_call"})
"""Kinds whose ids are unique only within a turn: providers restart at call_0 in every turn."""

_KINDS = {type_: kind for kind, type_ in TYPES.items()}


def kind_of(value: object) -> Kind:
    """Return the kind of a value. A str is a standing instruction, the only kind that is bare text."""
    exact = _KINDS.get(type(value))
    if exact is not None:
        return exact
    for kind, type_ in TYPES.items():
        if isinstance(value, type_):
            return kind
    if isinstance(value, str | Tokenizable):
        return "standing_instruction"
    raise InvalidValue(f"{type(value).__name__} can't be stored in a turn; the types are {', '.join(KINDS)}")


# ------------------------------------------------------------------------------------------------------------ resolvers


Resolver = Callable[[Any], Any]  # the locator of a descriptor → a reader


class Resolvers:
    """Functions that open locators, by tag; separate for media and spooled text."""

    def __init__(self) -> None:
        self._media: dict[str, Resolver] = {}
        self._spool: dict[str, Resolver] = {}

    def media(self, tag: str, resolver: Resolver) -> None:
        """Register the resolver for media of this tag; the last registration wins."""
        self._media[tag] = resolver

    def spool(self, tag: str, resolver: Resolver) -> None:
        """Register the resolver for spooled text of this tag; the last registration wins."""
        self._spool[tag] = resolver

    def knows(self, descriptor: Descriptor, *, media: bool) -> bool:
        return descriptor["tag"] in (self._media if media else self._spool)

    def open(self, descriptor: Descriptor, *, media: bool) -> Any:
        """Return the described reader. Raise NoReaderResolver if its tag is not registered."""
        resolver = (self._media if media else self._spool).get(descriptor["tag"])
        if resolver is None:
            what = "media" if media else "spool"
            raise NoReaderResolver(
                f"no resolver is registered for {what} readers with the tag {descriptor['tag']!r}; "
                f"call resolvers.{what}({descriptor['tag']!r}, …) before reading"
            )
        return resolver(descriptor["locator"])

    def copy(self) -> Resolvers:
        copy = Resolvers()
        copy._media |= self._media
        copy._spool |= self._spool
        return copy


class ArtifactTypes:
    """Subclasses of SpooledArtifact by name; SpooledArtifact itself has the name "text"."""

    def __init__(self) -> None:
        self._types: dict[str, type[SpooledArtifact]] = {"text": SpooledArtifact}

    def register(self, name: str, kind: type[SpooledArtifact]) -> None:
        """Store artifacts of this class under this name."""
        self._types[name] = kind

    def name_of(self, artifact: SpooledArtifact) -> str:
        for name, kind in self._types.items():
            if type(artifact) is kind:
                return name
        raise InvalidValue(
            f"{type(artifact).__name__} is not registered, so it could not be read back; "
            f"call artifacts.register('a-name', {type(artifact).__name__}) first"
        )

    def make(self, name: str, reader: Any) -> SpooledArtifact:
        kind = self._types.get(name)
        if kind is None:
            raise NoReaderResolver(
                f"no class is registered for artifacts named {name!r}; register it with artifacts.register"
            )
        return kind(reader)
