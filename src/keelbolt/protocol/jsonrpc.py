"""JSON-RPC 2.0 for both versions: parses calls, and encodes results and errors.

`parse` raises only typed errors, for any bytes. The id of a call is kept as JSON for the response. A call without an id
gets a response too (with id null), since A2A has no notifications.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from keelbolt.errors import InvalidParamsError, InvalidRequestError, MethodNotFoundError, RequestTooLargeError
from keelbolt.protocol.operations import METHODS, Operation
from keelbolt.protocol.strict_json import read
from keelbolt.protocol.types import Json
from keelbolt.protocol.validation import DEFAULT, Limits, bounded
from keelbolt.protocol.versions import ProtocolVersion

MAX_ID_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class JsonRpcCall:
    """A request. ``id`` is JSON (``b"null"`` also when absent)."""

    id: bytes
    method: str
    params: dict[str, Json]

    def resolve(self) -> tuple[Operation, ProtocolVersion]:
        """Return the operation and the version of the method name. Raise MethodNotFoundError."""
        found = METHODS.get(self.method)
        if found is None:
            raise _with_id(MethodNotFoundError(), self.id)
        return found


def parse(body: bytes, *, limits: Limits = DEFAULT) -> JsonRpcCall:
    """Return the call in a request body, and check its size before validation.

    Raise ParseError, InvalidRequestError, RequestTooLargeError or InvalidParamsError.
    """
    value = read(body, limits=limits)
    if isinstance(value, list):
        raise InvalidRequestError("batches are not supported; send each request on its own")
    if not isinstance(value, dict):
        raise InvalidRequestError("a request must be an object with jsonrpc, id, method and params")
    id_json = _id(value.get("id"))
    if value.get("jsonrpc") != "2.0":
        raise _with_id(InvalidRequestError('jsonrpc must be "2.0"'), id_json)
    method = value.get("method")
    if not isinstance(method, str):
        words = "method is missing" if method is None else "method must be a string"
        raise _with_id(InvalidRequestError(words), id_json)
    params = value.get("params")
    if params is None:
        params = {}
    elif not isinstance(params, dict):
        raise _with_id(InvalidParamsError("params must be an object"), id_json)
    if body.count(b",") >= limits.items:  # with fewer commas, no list is too long
        try:
            bounded(params, limits)
        except RequestTooLargeError as error:
            raise _with_id(error, id_json) from None
    return JsonRpcCall(id_json, method, params)


def _id(value: Json) -> bytes:
    if value is None:
        return b"null"
    if isinstance(value, str):
        if len(value) <= MAX_ID_CHARACTERS:
            return to_json(value)
    elif type(value) is int and value.bit_length() <= 4 * MAX_ID_CHARACTERS:  # not bool
        return str(value).encode()
    raise InvalidRequestError("id must be a short string, an integer or null")


def _with_id(error: Any, id_json: bytes) -> Any:
    error.request_id = id_json
    return error


def result(id_json: bytes, payload: bytes) -> bytes:
    """Return the response of a call, or one event of a stream."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_json, payload)


def error(id_json: bytes, payload: bytes) -> bytes:
    """Return the error response of a call; the payload is the error object."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_json, payload)


def request(id_json: bytes, method: str, params: bytes) -> bytes:
    """Return a request body."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (id_json, to_json(method), params)
