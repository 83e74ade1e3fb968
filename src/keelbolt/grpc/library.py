"""grpcio and its companions. Importing this module raises MissingExtra if they are not installed."""

from __future__ import annotations

import os
from typing import Any

from keelbolt.protocol.protobuf.extra import load

# Otherwise gRPC prints to stderr, bypassing logging, whenever a worker starts a program. Set the variable to see it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

grpc: Any = load("grpc")
aio: Any = load("grpc.aio")
health: Any = load("grpc_health.v1.health")
health_pb2: Any = load("grpc_health.v1.health_pb2")
health_pb2_grpc: Any = load("grpc_health.v1.health_pb2_grpc")
reflection: Any = load("grpc_reflection.v1alpha.reflection")
