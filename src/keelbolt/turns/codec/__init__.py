"""Converts primitives to JSON and back: `TurnCodec`. JSON never contains bytes, only descriptors of their readers."""

from __future__ import annotations

from keelbolt.turns.codec.codec import Primitive, TurnCodec, readers_of
from keelbolt.turns.codec.kinds import KINDS, Kind, kind_of
from keelbolt.turns.codec.resolvers import ArtifactTypes, Resolver, Resolvers

__all__ = [
    "KINDS",
    "ArtifactTypes",
    "Kind",
    "Primitive",
    "Resolver",
    "Resolvers",
    "TurnCodec",
    "kind_of",
    "readers_of",
]
