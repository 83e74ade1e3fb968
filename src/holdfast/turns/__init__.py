"""Runs agent turns over a checked storage contract of 27 callbacks, with a durable adapter of its own."""

from __future__ import annotations

from holdfast.turns.abort import AbortController, AbortSignal
from holdfast.turns.callbacks import CALLBACKS, REQUIRED, StorageCallbacks
from holdfast.turns.codec import ArtifactTypes, Codec, Resolvers
from holdfast.turns.context import TurnContext, TurnInput
from holdfast.turns.dispatch import DispatchRunner, Executor
from holdfast.turns.dispatch_context import DispatchContext
from holdfast.turns.durable import DurableGates, DurableStorage, Scope, StoredGate, durable_storage
from holdfast.turns.gates import GateStore, Settlement, TurnGate
from holdfast.turns.helpers import ExecutorHelpers
from holdfast.turns.hydrate import hydrate
from holdfast.turns.memory_bytes import InMemoryMediaStore, InMemorySpoolStore, in_memory_media_reader
from holdfast.turns.noop import noop_storage
from holdfast.turns.pipeline import Middleware, Next
from holdfast.turns.primitives import (
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
from holdfast.turns.progress import Progress, ProgressStore
from holdfast.turns.queue import Persistence
from holdfast.turns.raw_dispatch import RawDispatch
from holdfast.turns.readers import ByteStore, ListableByteStore, MediaReader, RangeReader, SpoolReader
from holdfast.turns.registry import Registry
from holdfast.turns.runner import TurnResult, TurnRunner, TurnRunnerConfig
from holdfast.turns.sets import InstructionSet, PrimitiveSet
from holdfast.turns.tool_registry import ToolRegistry
from holdfast.turns.tools import Tool
from holdfast.turns.windows import FetchPolicy, TopK, Window
from holdfast.turns.worker import TurnWorker, turn_worker

__all__ = [
    "CALLBACKS",
    "REQUIRED",
    "AbortController",
    "AbortSignal",
    "ArtifactTypes",
    "ByteStore",
    "Codec",
    "DispatchContext",
    "DispatchRunner",
    "DurableGates",
    "DurableStorage",
    "Executor",
    "ExecutorHelpers",
    "FetchPolicy",
    "GateStore",
    "Identity",
    "InMemoryMediaStore",
    "InMemorySpoolStore",
    "InstructionSet",
    "ListableByteStore",
    "Media",
    "MediaReader",
    "Memory",
    "Message",
    "Middleware",
    "Next",
    "Persistence",
    "PrimitiveSet",
    "Progress",
    "ProgressStore",
    "RangeReader",
    "RawDispatch",
    "Registry",
    "Resolvers",
    "Retrievable",
    "Scope",
    "Settlement",
    "SpoolReader",
    "SpooledArtifact",
    "StorageCallbacks",
    "StoredGate",
    "Thought",
    "Tokenizable",
    "Tool",
    "ToolCall",
    "ToolRegistry",
    "TopK",
    "TurnContext",
    "TurnGate",
    "TurnInput",
    "TurnResult",
    "TurnRunner",
    "TurnRunnerConfig",
    "TurnWorker",
    "Window",
    "durable_storage",
    "hydrate",
    "in_memory_media_reader",
    "noop_storage",
    "register_encoding",
    "tool_call_checksum",
    "turn_worker",
]
