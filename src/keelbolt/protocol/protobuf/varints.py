"""Variable-length integers of the protobuf wire format."""

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
