"""Every error of the table is a gRPC status with its details."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.errors import (
    BusyError,
    FieldViolation,
    InvalidParamsError,
    KeelboltError,
    MethodNotFoundError,
    RateLimitedError,
)
from keelbolt.grpc.handlers import DETAILS, MAX_DETAILS_BYTES, fail, pairs, scope_of
from keelbolt.grpc.library import grpc
from keelbolt.protocol.errors import QUIET, TABLE, ErrorRow
from keelbolt.protocol.protobuf.shapes import error_details_pb2, status_pb2


class Aborted(Exception):
    pass


class Context:
    """Records how a call was ended."""

    def __init__(self) -> None:
        self.code: Any = None
        self.message = ""
        self.trailing: dict[str, Any] = {}

    async def abort(self, code: Any, message: str, trailing: tuple[tuple[str, Any], ...]) -> None:
        self.code, self.message, self.trailing = code, message, dict(trailing)
        raise Aborted


async def ended(error: Exception) -> Context:
    context = Context()
    with pytest.raises(Aborted):
        await fail(context, error)
    return context


def status_of(context: Context) -> Any:
    return status_pb2.Status.FromString(context.trailing[DETAILS])


def info_of(status: Any) -> Any:
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


@pytest.mark.parametrize(
    ("kind", "row"), [*TABLE.items(), *QUIET.items()], ids=lambda one: getattr(one, "__name__", "")
)
async def test_every_row(kind: type[KeelboltError], row: ErrorRow) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "why")
    if isinstance(error, BusyError):
        error.retry_after = 5
    context = await ended(error)
    expected = "UNIMPLEMENTED" if kind is MethodNotFoundError else row.grpc
    assert context.code is grpc.StatusCode[expected]
    status = status_of(context)
    assert (status.code, status.message) == (context.code.value[0], context.message)
    info = info_of(status)
    assert (info.reason, info.domain) == (row.reason, "a2a-protocol.org")


async def test_wrong_fields_are_named() -> None:
    status = status_of(await ended(InvalidParamsError(violations=[FieldViolation("message.parts", "is required")])))
    wrong = error_details_pb2.BadRequest()
    assert status.details[1].Unpack(wrong)
    assert [(one.field, one.description) for one in wrong.field_violations] == [("message.parts", "is required")]


async def test_details_fit_the_limits_of_clients() -> None:
    error = InvalidParamsError("x" * 5000, violations=[FieldViolation("f" * 900, "is required")] * 20)
    context = await ended(error)
    assert len(context.message) == 1000
    assert len(context.trailing[DETAILS]) < MAX_DETAILS_BYTES + 1500


async def test_retry_after() -> None:
    assert (await ended(RateLimitedError(retry_after=7))).trailing["retry-after"] == "7"


async def test_internal_errors_are_not_shown() -> None:
    context = await ended(RuntimeError("SELECT secret FROM table"))
    assert context.code is grpc.StatusCode.INTERNAL
    assert "secret" not in context.message


def test_metadata_is_headers() -> None:
    scope = scope_of("/s/m", (("authorization", "Bearer x"), ("trace-bin", b"\x00\xff")))
    assert scope["headers"] == [(b"authorization", b"Bearer x"), (b"trace-bin", b"\x00\xff")]


def test_messages_are_plain() -> None:
    assert pairs(((b"www-authenticate", 'Bearer realm="ä\n"'.encode("latin-1")),)) == (
        ("www-authenticate", 'Bearer realm="??"'),
    )
