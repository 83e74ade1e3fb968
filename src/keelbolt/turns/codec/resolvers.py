"""Functions that open readers from their descriptors, and artifact classes by name.

The program registers them, so that stored data can't make it import or open anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keelbolt.errors import InvalidValue, NoReaderResolver
from keelbolt.turns.primitives import SpooledArtifact
from keelbolt.turns.readers import Descriptor

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
