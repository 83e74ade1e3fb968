"""A2A as protobuf (``keelbolt[grpc]``): the official messages, between their bytes and our codecs' JSON.

extra       whether what is needed is installed
official    the messages of the official SDK; MissingExtra when they are not there
structs     Struct, Value and Timestamp as JSON values, and back
shapes      messages as JSON values, and back, by their descriptors
methods     the methods of both packages: which operation, which messages, which codec
numbers     the number of an event, in a field that others skip
"""

from __future__ import annotations
