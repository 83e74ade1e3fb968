"""Varints of the wire format, and the number of an event, appended in a field that no version of StreamResponse has.

Protobuf readers skip unknown fields, so other clients see only the official message. Our client resumes a stream after
its last number with the metadata ``last-event-id``.
"""

from __future__ import annotations


def write_varint(number: int) -> bytes:
    """Return the encoded number."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it. Raise IndexError if the bytes are invalid."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise IndexError


FIELD = 1000
_TAG = FIELD << 3  # a varint


def numbered(message: bytes, seq: int | None) -> bytes:
    """Return the bytes of a message with its number appended."""
    return message if seq is None else message + _TAG_BYTES + write_varint(seq)


_TAG_BYTES = write_varint(_TAG)


def number_of(message: bytes) -> int | None:
    """Return the number of a message; None if it has none, or if the bytes are no message."""
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
