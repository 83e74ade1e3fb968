"""The agent by gRPC (``keelbolt[grpc]``): both versions on one port, with the same operations as JSON-RPC and REST.

address     where to listen, also in several processes
metadata    metadata as headers, so that a call passes the same gate as a request
statuses    failures as gRPC statuses with details
handlers    a call: in by the gate, through the dispatcher, out as a message
health      the health service: what /ready says
server      all of it on a port, with reflection

How messages become JSON and back is `keelbolt.protocol.protobuf`. The server loads `grpc.server` only when a port is
asked for, and after it has forked: a process with gRPC in it can't be.
"""

from __future__ import annotations
