"""The agent over gRPC (``keelbolt[grpc]``): both versions on one port, with the same operations as JSON-RPC and REST.

address     the listening address, also for several processes
metadata    metadata as headers, so that a call passes the same gate as a request
statuses    failures as gRPC statuses with details
handlers    runs a call: gate, dispatcher, response message
health      the health service, with the result of /ready
server      the server on a port, with reflection

`keelbolt.protocol.protobuf` converts messages to JSON and back. The server imports `grpc.server` only if a port is
configured, and after it has forked: a process that loaded gRPC can't fork.
"""

from __future__ import annotations
