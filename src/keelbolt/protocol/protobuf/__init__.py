"""A2A as protobuf (``keelbolt[grpc]``): converts the official messages between bytes and our codecs' JSON.

extra       checks that the extra is installed
official    the messages of the official SDK; MissingExtra without it
structs     Struct, Value and Timestamp to JSON values and back
shapes      messages to JSON values and back, by their descriptors
methods     the methods of both packages, with their operations, messages and codecs
numbers     the number of an event, in a field that other clients skip
"""

from __future__ import annotations
