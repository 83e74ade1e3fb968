"""grpcio and its companions. Importing this module raises MissingExtra when they are not installed."""

from __future__ import annotations

from typing import Any

from holdfast.protocol.protobuf.extra import load

grpc: Any = load("grpc")
aio: Any = load("grpc.aio")
health: Any = load("grpc_health.v1.health")
health_pb2: Any = load("grpc_health.v1.health_pb2")
health_pb2_grpc: Any = load("grpc_health.v1.health_pb2_grpc")
reflection: Any = load("grpc_reflection.v1alpha.reflection")
