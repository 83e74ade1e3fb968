"""Who opens a reader again from its descriptor, and which class of artifact a name stands for.

Names are registered by the program, so that nothing stored can choose what is imported or opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keelbolt.errors import InvalidValue, NoReaderResolver
from keelbolt.turns.primitives import SpooledArtifact
from keelbolt.turns.readers import Descriptor

Resolver = Callable[[Any], Any]  # the locator of a descriptor → a reader


class Resolvers:
    """One for media and one for spooled text: a tag → the function that opens its locators."""

    def __init__(self) -> None:
        self._media: dict[str, Resolver] = {}
        self._spool: dict[str, Resolver] = {}

    def media(self, tag: str, resolver: Resolver) -> None:
        """Open media of this tag so; the last registration counts."""
        self._media[tag] = resolver

    def spool(self, tag: str, resolver: Resolver) -> None:
        """Open spooled text of this tag so; the last registration counts."""
        self._spool[tag] = resolver

    def knows(self, descriptor: Descriptor, *, media: bool) -> bool:
        return descriptor["tag"] in (self._media if media else self._spool)

    def open(self, descriptor: Descriptor, *, media: bool) -> Any:
        """The reader that was described."""
        resolver = (self._media if media else self._spool).get(descriptor["tag"])
        if resolver is None:
            what = "media" if media else "spool"
            raise NoReaderResolver(
                f"nobody is registered who can open {what} readers of the tag {descriptor['tag']!r}; "
                f"call resolvers.{what}({descriptor['tag']!r}, …) before reading"
            )
        return resolver(descriptor["locator"])

    def copy(self) -> Resolvers:
        copy = Resolvers()
        copy._media |= self._media
        copy._spool |= self._spool
        return copy


class ArtifactTypes:
    """Subclasses of SpooledArtifact by name; the class itself has the name "text"."""

    def __init__(self) -> None:
        self._types: dict[str, type[SpooledArtifact]] = {"text": SpooledArtifact}

    def register(self, name: str, kind: type[SpooledArtifact]) -> None:
        """Keep artifacts of this class under this name."""
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
            raise NoReaderResolver(f"nobody registered a class for artifacts named {name!r}; artifacts.register it")
        return kind(reader)
