"""Third-party modules: protobuf, and the generated messages of the official SDK.

Importing this module raises MissingExtra if one is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from keelbolt.protocol.protobuf.extra import load

# Typed as Any: generated code, and a library that creates its classes at run time.
Descriptor: TypeAlias = Any
Field: TypeAlias = Any

messages_v1: Any = load("a2a.types.a2a_pb2")
messages_v03: Any = load("a2a.compat.v0_3.a2a_v0_3_pb2")
status_pb2: Any = load("google.rpc.status_pb2")
error_details_pb2: Any = load("google.rpc.error_details_pb2")
DecodeError: type[Exception] = load("google.protobuf.message").DecodeError
message_class: Callable[[Descriptor], Any] = load("google.protobuf.message_factory").GetMessageClass
