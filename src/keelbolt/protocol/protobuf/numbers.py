"""The number of an event, behind it: a field that no version of StreamResponse has.

Readers of protobuf skip fields that they don't know, so that other clients see the official message and nothing else.
Ours continues a stream after the last number it has, by the metadata ``last-event-id``.
"""

from __future__ import annotations

from keelbolt.protocol.protobuf.varints import read_varint, write_varint

FIELD = 1000
_TAG = FIELD << 3  # a varint


def numbered(message: bytes, seq: int | None) -> bytes:
    """The bytes of a message with its number."""
    return message if seq is None else message + _TAG_BYTES + write_varint(seq)


_TAG_BYTES = write_varint(_TAG)


def number_of(message: bytes) -> int | None:
    """The number of a message's bytes; None if there is none, or if this is no message."""
    found, at = None, 0
    try:
        while at < len(message):
            tag, at = read_varint(message, at)
            match tag & 7:
                case 0:
                    value, at = read_varint(message, at)
                    found = value if tag == _TAG else found
                case 1:
                    at += 8
                case 2:
                    size, at = read_varint(message, at)
                    at += size
                case 5:
                    at += 4
                case _:
                    return None
    except IndexError:
        return None
    return found if at == len(message) else None
