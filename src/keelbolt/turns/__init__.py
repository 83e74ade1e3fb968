"""Runs agent turns over a validated storage contract of 27 callbacks, and provides a durable adapter."""

from __future__ import annotations

from keelbolt.outbound.download import DownloadRules
from keelbolt.turns.abort import AbortController, AbortSignal
from keelbolt.turns.callbacks import CALLBACKS, REQUIRED, FetchPolicy, StorageCallbacks, TopK, Window
from keelbolt.turns.chat import (
    AnthropicModel,
    CallRequest,
    ChatMessage,
    Delta,
    Model,
    ModelRequest,
    OpenAIModel,
    PydanticAIModel,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    Usage,
    chat_executor,
    tool,
)
from keelbolt.turns.codec import ArtifactTypes, Resolvers, TurnCodec
from keelbolt.turns.context import ProgressStore, TurnContext, TurnInput, TurnProgress
from keelbolt.turns.dispatch import DispatchRunner, Executor
from keelbolt.turns.dispatch_context import DispatchContext, RawDispatch
from keelbolt.turns.durable import (
    DurableGates,
    DurableStorage,
    LeasedTurns,
    LeftTurn,
    StoredGate,
    TurnScope,
    durable_storage,
)
from keelbolt.turns.gates import GateStore, Settlement, TurnGate
from keelbolt.turns.in_memory import InMemoryMediaStore, InMemorySpoolStore, in_memory_media_reader, noop_storage
from keelbolt.turns.middleware import Middleware, Next, hydrate
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
from keelbolt.turns.queue import Persistence
from keelbolt.turns.readers import ByteStore, ListableByteStore, MediaReader, RangeReader, SpoolReader
from keelbolt.turns.registry import Registry
from keelbolt.turns.reports import ExecutorHelpers
from keelbolt.turns.runner import TurnResult, TurnRunner, TurnRunnerConfig
from keelbolt.turns.sets import InstructionSet, PrimitiveSet
from keelbolt.turns.tools import Tool, ToolRegistry
from keelbolt.turns.worker import TurnWorker, turn_worker

__all__ = [
    "CALLBACKS",
    "REQUIRED",
    "AbortController",
    "AbortSignal",
    "AnthropicModel",
    "ArtifactTypes",
    "ByteStore",
    "CallRequest",
    "ChatMessage",
    "Delta",
    "DispatchContext",
    "DispatchRunner",
    "DownloadRules",
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
    "LeasedTurns",
    "LeftTurn",
    "ListableByteStore",
    "Media",
    "MediaReader",
    "Memory",
    "Message",
    "Middleware",
    "Model",
    "ModelRequest",
    "Next",
    "OpenAIModel",
    "Persistence",
    "PrimitiveSet",
    "ProgressStore",
    "PydanticAIModel",
    "RangeReader",
    "RawDispatch",
    "Registry",
    "Resolvers",
    "Retrievable",
    "Settlement",
    "SpoolReader",
    "SpooledArtifact",
    "StorageCallbacks",
    "StoredGate",
    "TextDelta",
    "Thought",
    "ThoughtDelta",
    "Tokenizable",
    "Tool",
    "ToolCall",
    "ToolRegistry",
    "ToolSpec",
    "TopK",
    "TurnCodec",
    "TurnContext",
    "TurnGate",
    "TurnInput",
    "TurnProgress",
    "TurnResult",
    "TurnRunner",
    "TurnRunnerConfig",
    "TurnScope",
    "TurnWorker",
    "Usage",
    "Window",
    "chat_executor",
    "durable_storage",
    "hydrate",
    "in_memory_media_reader",
    "noop_storage",
    "register_encoding",
    "tool",
    "tool_call_checksum",
    "turn_worker",
]
