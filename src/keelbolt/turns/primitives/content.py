"""Content by reference: images, audio, video and documents, and long texts that stay in their store.

A primitive has a reference to the bytes, never the bytes. Long texts are read by lines.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict, cast, get_args

from keelbolt.errors import InvalidInitialMediaValue, NotAMediaReader, NotASpoolReader
from keelbolt.kernel.ids import new_id
from keelbolt.turns.primitives.values import (
    MODALITY_HAZARDS,
    TRUST_TIERS,
    Encoder,
    ModalityHazard,
    TrustTier,
    Wrong,
    count_tokens,
    keep,
    one_of,
    optional_text,
    refusing,
    text,
)
from keelbolt.turns.readers import MediaReader, SpoolReader, answer, is_media_reader, is_range_reader, is_spool_reader
from keelbolt.turns.registry import Registry

MediaKind = Literal["image", "audio", "video", "document"]
MEDIA_KINDS: tuple[MediaKind, ...] = get_args(MediaKind)


class MediaStashEntry(TypedDict):
    """Information about media (a caption, a transcript) with its own trust tier."""

    value: Any
    trust_tier: TrustTier
    derived_from_media: NotRequired[str]


@refusing(InvalidInitialMediaValue)
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Media:
    """A reference to bytes. ``trust_tier`` and ``modality_hazard`` are required; the factories below set them.

    ``stash`` holds information about the media; its entries are validated on creation, and are immutable.
    """

    id: str
    kind: MediaKind
    mime_type: str
    filename: str
    reader: MediaReader = field(repr=False)
    trust_tier: TrustTier
    modality_hazard: ModalityHazard
    source: str | None
    stash: Registry

    def __init__(
        self,
        *,
        id: str | None = None,  # noqa: A002
        kind: MediaKind,
        mime_type: str,
        filename: str,
        reader: MediaReader,
        trust_tier: TrustTier,
        modality_hazard: ModalityHazard,
        source: str | None = None,
        stash: Mapping[str, MediaStashEntry] | Registry | None = None,
    ) -> None:
        if not is_media_reader(reader):
            raise NotAMediaReader(f"{type(reader).__name__} is no media reader: {NotAMediaReader.__doc__}")
        keep(
            self,
            id=new_id() if id is None else text("id", id),
            kind=one_of("kind", kind, MEDIA_KINDS),
            mime_type=text("mime_type", mime_type),
            filename=text("filename", filename),
            reader=reader,
            trust_tier=one_of("trust_tier", trust_tier, TRUST_TIERS),
            modality_hazard=one_of("modality_hazard", modality_hazard, MODALITY_HAZARDS),
            source=optional_text("source", source),
            stash=_stash(stash),
        )

    @classmethod
    def user_attachment(cls, *, kind: MediaKind, **fields: Any) -> Media:
        """Create media that a user sent: third-party-private."""
        return cls(kind=kind, **_labels(kind, "third-party-private"), **fields)

    @classmethod
    def tool_generated(cls, *, kind: MediaKind, **fields: Any) -> Media:
        """Create media that one of your tools made: first-party."""
        return cls(kind=kind, **_labels(kind, "first-party"), **fields)

    @classmethod
    def retrieved_public(cls, *, kind: MediaKind, **fields: Any) -> Media:
        """Create media from a public source: third-party-public."""
        return cls(kind=kind, **_labels(kind, "third-party-public"), **fields)

    @classmethod
    def retrieved_private(cls, *, kind: MediaKind, **fields: Any) -> Media:
        """Create media from a private collection: third-party-private."""
        return cls(kind=kind, **_labels(kind, "third-party-private"), **fields)

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces, from the start at each call."""
        async for piece in self.reader.stream():
            yield piece

    async def byte_length(self) -> int | None:
        """Return the number of bytes; None if it is unknown."""
        return await answer(self.reader.byte_length())

    async def as_bytes(self) -> bytes:
        """Return all bytes at once; stream large media instead."""
        return b"".join([piece async for piece in self.stream()])

    async def as_base64(self) -> str:
        return base64.b64encode(await self.as_bytes()).decode("ascii")

    def to_json(self) -> dict[str, Any]:
        """Return the metadata without using the reader: neither bytes nor their number."""
        return {
            "id": self.id,
            "kind": self.kind,
            "mimeType": self.mime_type,
            "filename": self.filename,
            "source": self.source,
            "trustTier": self.trust_tier,
            "modalityHazard": self.modality_hazard,
            "stash": {name: _entry_json(entry) for name, entry in self.stash.all().items()},
        }


_SPELLED = {"trust_tier": "trustTier", "derived_from_media": "derivedFromMedia"}


def _labels(kind: object, tier: TrustTier) -> dict[str, Any]:
    """Return the labels for a kind: a document carries text that a model may follow as instructions."""
    hazard = "extractable-instructions" if kind == "document" else "opaque-perceptual"
    return {"trust_tier": tier, "modality_hazard": hazard}


_EMPTY = Registry().frozen()


def _stash(value: object) -> Registry:
    if isinstance(value, Registry) and value.is_frozen:
        return value  # of other media: already validated
    entries = value.all() if isinstance(value, Registry) else value
    if entries is None:
        return _EMPTY
    if not isinstance(entries, Mapping):
        raise Wrong(f"stash is a dict of entries, not {type(entries).__name__}")
    for name, entry in entries.items():
        if not isinstance(name, str):
            raise Wrong(f"stash has the key {name!r}; its keys are strings")
        if not isinstance(entry, dict) or "value" not in entry:
            raise Wrong(f"stash entry {name!r} is a dict with value, trust_tier and perhaps derived_from_media")
        one_of(f"trust_tier of stash entry {name!r}", entry.get("trust_tier"), TRUST_TIERS)
        if "derived_from_media" in entry:
            text(f"derived_from_media of stash entry {name!r}", entry["derived_from_media"])
        if unknown := set(entry) - {"value", "trust_tier", "derived_from_media"}:
            raise Wrong(f"stash entry {name!r} has the unknown key {min(map(str, unknown))!r}")
    return Registry(cast("dict[str, Any]", dict(entries))).frozen()


def _entry_json(entry: object) -> object:
    if not isinstance(entry, dict):
        return entry
    return {_SPELLED.get(name, name): value for name, value in entry.items()}


# ------------------------------------------------------------------------------------------------------------- artifact


_STEP = 256  # lines per read, if the reader supports ranges


class SpooledArtifact:
    """A read-only view of text that a SpoolReader reads; it holds no text itself.

    Subclass it to add methods for a kind of text.
    """

    __slots__ = ("_reader",)

    def __init__(self, reader: SpoolReader) -> None:
        if not is_spool_reader(reader):
            raise NotASpoolReader(f"{type(reader).__name__} is no spool reader: {NotASpoolReader.__doc__}")
        self._reader = reader

    @property
    def reader(self) -> SpoolReader:
        return self._reader

    async def head(self, n: int = 10) -> list[str]:
        """Return the first n lines."""
        return await self.cat(0, n)

    async def tail(self, n: int = 10) -> list[str]:
        """Return the last n lines."""
        count = await self.line_count()
        return await self.cat(max(0, count - max(0, n)), count)

    async def grep(self, pattern: str | re.Pattern[str]) -> list[str]:
        """Return the lines that match this regular expression."""
        wanted = re.compile(pattern)
        return [line async for line in self._lines(0, await self.line_count()) if wanted.search(line)]

    async def cat(self, start: int = 0, end: int | None = None) -> list[str]:
        """Return the lines from start to end (exclusive), clipped to the text."""
        count = await self.line_count()
        first = max(0, start)
        last = count if end is None else min(end, count)
        return [line async for line in self._lines(first, last)]

    async def byte_length(self) -> int:
        return await answer(self._reader.byte_length())

    async def line_count(self) -> int:
        return await answer(self._reader.line_count())

    async def as_string(self) -> str:
        """Return the whole text, exactly as stored."""
        return await answer(self._reader.read_all())

    async def estimate_tokens(self, encoding: str | Encoder | None = None) -> int:
        """Return the number of tokens for a model; reads the whole text."""
        return count_tokens(await self.as_string(), encoding)

    async def _lines(self, start: int, end: int) -> AsyncIterator[str]:
        if is_range_reader(self._reader):
            for first in range(start, end, _STEP):
                for line in await answer(self._reader.lines(first, min(first + _STEP, end))):
                    yield line
        else:
            for index in range(start, end):
                found = await answer(self._reader.line(index))
                if found is None:
                    return
                yield found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._reader).__name__})"
