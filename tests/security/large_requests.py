"""Requests of at most 10 MiB that try to cost as much time and memory as possible."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

from keelbolt.protocol.protobuf.numbers import write_varint

MOST = 10 * 1024 * 1024


def _message(parts: bytes = b'[{"text":"hello"}]', more: bytes = b"") -> bytes:
    return b'"message":{"messageId":"m","role":"ROLE_USER","parts":%b%b}' % (parts, more)


def _data(value: bytes) -> bytes:
    return _message(b'[{"data":%b}]' % value)


def _many(item: bytes, most: int = MOST - 1000) -> bytes:
    """Return an array with as many items as fit."""
    return b"[" + b",".join([item] * ((most - 2) // (len(item) + 1))) + b"]"


def _counted(item: bytes, count: int = 99_000) -> bytes:
    """Return an array with as many items as are valid."""
    return b"[" + b",".join([item] * count) + b"]"


def _keys(count: int) -> bytes:
    return b"{" + b",".join(b'"k%d":0' % number for number in range(count)) + b"}"


def _globs(count: int) -> bytes:
    return json.dumps([f"a/{number}*" for number in range(count)]).encode()


def _string(item: str) -> bytes:
    text = item.encode()
    return b'"' + text * ((MOST - 1000) // len(text)) + b'"'


_NESTED = b"[" * 55 + b"]" * 55

REFUSED: dict[str, Callable[[], bytes]] = {
    "empty parts": lambda: _message(_many(b"{}")),
    "parts of numbers": lambda: _message(_many(b"0")),
    "references that are numbers": lambda: _message(more=b',"referenceTaskIds":' + _many(b"0")),
    "references": lambda: _message(more=b',"referenceTaskIds":' + _many(b'"t"')),
    "extensions": lambda: _message(more=b',"extensions":' + _many(b'"urn:x"')),
    "output modes": lambda: _message() + b',"configuration":{"acceptedOutputModes":%b}' % _many(b'"a/b*c"'),
    "90,000 output modes": lambda: _message() + b',"configuration":{"acceptedOutputModes":%b}' % _globs(90_000),
    "49,000 empty parts": lambda: _message(_counted(b"{}", 49_000)),
    "90,000 wrong references": lambda: _message(more=b',"referenceTaskIds":' + _counted(b"0", 90_000)),
    "keys of metadata": lambda: _message() + b',"metadata":' + _keys(700_000),
    "keys of a message's metadata": lambda: _message(more=b',"metadata":' + _keys(90_000)),
    "unknown members": lambda: _message() + b"," + _keys(90_000)[1:-1],
    "data of small numbers": lambda: _data(_many(b"0")),
    "data of floats": lambda: _data(_many(b"1.5")),
    "data of empty objects": lambda: _data(_many(b"{}")),
    "data of strings": lambda: _data(_many(b'""')),
    "data nested 55 deep": lambda: _data(_many(_NESTED)),
    "a million brackets": lambda: _data(b"[" * 5_000_000),
    "an open string": lambda: _data(b'"' + b"," * (MOST - 1000)),
    "a long number": lambda: _data(b"1" * (MOST - 1000)),
    "the same key again": lambda: _data(b"{" + b",".join([b'"a":1'] * 90_000) + b"}"),
}
"""Bodies that must be refused, by what they are made of; each is the inside of an object."""

ACCEPTED: dict[str, Callable[[], bytes]] = {
    "one large text": lambda: _message(b'[{"text":%b}]' % _string("x")),
    "a text of commas": lambda: _message(b'[{"text":%b}]' % _string(",[{")),
    "a text with one emoji": lambda: _message(b'[{"text":"\\ud83d\\ude00%b]' % (_string("x")[1:] + b"}")),
    "a text of escapes": lambda: _message(b'[{"text":%b}]' % _string("\\u0041")),
    "a text of surrogate pairs": lambda: _message(b'[{"text":%b}]' % _string("\\ud83d\\ude00")),
    "a text of emoji": lambda: _message(b'[{"text":%b}]' % _string("😀")),
    "bytes": lambda: _message(b'[{"raw":%b}]' % _string("AAAA")),
    "1,000 parts": lambda: _message(b"[" + b",".join([b'{"text":"%b"}' % (b"x" * 10_000)] * 1000) + b"]"),
    "data of 99,000 numbers": lambda: _data(_counted(b"0")),
    "data of 99,000 floats": lambda: _data(_counted(b"1.5e10")),
    "data of 49,000 objects": lambda: _data(_counted(b"{}", 49_000)),
    "data of 33,000 objects of one": lambda: _data(_counted(b'{"a":[]}', 33_000)),
    "data of 99,000 strings": lambda: _data(_counted(b'"%b"' % (b"x" * 90))),
    "data of 99,000 keys": lambda: _data(_keys(99_000)),
    "data of 1,700 × 55 levels": lambda: _data(_counted(_NESTED, 1_700)),
    "spaces": lambda: _message() + b" " * (MOST - 1000),
}
"""Bodies that are valid requests."""


def jsonrpc(inside: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{%b}}' % inside


def rest(inside: bytes) -> bytes:
    return b"{%b}" % inside


BINDINGS: dict[str, Callable[[bytes], bytes]] = {"/": jsonrpc, "/message:send": rest}
"""Paths, and what makes a body for each."""

_numbers = itertools.count()


def fresh(body: bytes) -> bytes:
    """Return the body with a new message id."""
    return body.replace(b'"messageId":"m"', b'"messageId":"%d"' % next(_numbers), 1)


def _parts(content: bytes) -> bytes:
    """Return a SendMessageRequest of A2A 1.0 whose message has these fields."""
    return _field(2, content)


def _field(number: int, content: bytes) -> bytes:
    return write_varint(number << 3 | 2) + write_varint(len(content)) + content


_HALF = MOST // 2 - 1000
_PART, _REFERENCE = _field(5, b""), _field(8, b"")

PROTOBUF: dict[str, Callable[[], bytes]] = {
    "empty parts": lambda: _parts(_PART * _HALF),
    "600,000 empty parts": lambda: _parts(_PART * 600_000),
    "90,000 empty parts": lambda: _parts(_PART * 90_000),
    "empty references": lambda: _parts(_REFERENCE * _HALF),
    "empty values": lambda: _parts(_field(5, _field(4, _field(6, _field(1, b"") * (_HALF - 1000))))),
    "unknown fields": lambda: b"\xf8\x3e\x00" * (MOST // 3),
    "a group": lambda: b"\xfb\x3e" + b"\x0a\x00" * _HALF,
}
"""Requests of gRPC whose bytes are few and whose fields are many; all must be refused."""
