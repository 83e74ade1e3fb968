"""One call of the operations API: the caller, the owner that it concerns, its arguments, and the page."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic_core import from_json, to_json

from keelbolt.auth import ANONYMOUS, Principal
from keelbolt.errors import BadCursor, InvalidParamsError, MethodNotFoundError, TaskNotFoundError
from keelbolt.kernel import Kernel, Scope
from keelbolt.tasks.record import is_task_id

TENANT_OPERATOR = "operator"  # sees everything in its own tenant
SYSTEM_OPERATOR = "operator:all"  # sees all tenants, and data without a tenant

Reach = Literal["own", "tenant", "all"]
"""What a caller may see: its own data, everything in its tenant, or everything."""


@dataclass(frozen=True, slots=True)
class OpsCall:
    """``principal`` is the owner of the tasks: the caller, or the owner that an operator names.

    ``by`` is the caller's name for the log, so that an operator's action is not recorded as the owner's. ``reach`` is
    what the caller may see, and ``caller`` the caller itself. ``everywhere``: a list shows everything that the caller
    may see, for all owners.
    """

    principal: Principal
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    after: int | None
    base: str
    by: str = ""
    reach: Reach = "own"
    caller: Principal = ANONYMOUS
    everywhere: bool = False

    @property
    def operator(self) -> bool:
        """Whether the caller sees more than its own data."""
        return self.reach != "own"

    @property
    def task_id(self) -> str:
        """The task id of the path. Raises TaskNotFoundError if it can't be a task id."""
        task_id = self.names["task_id"]
        if not is_task_id(task_id):
            raise TaskNotFoundError(task_id)
        return task_id

    def number(self, name: str, default: int, *, low: int, high: int) -> int:
        """Return a number from the query or the body. Raises InvalidParamsError."""
        value: Any = self.body.get(name, self.query.get(name, default))
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidParamsError(f"{name} must be a number from {low} to {high}")
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a string from the query or the body. Raises InvalidParamsError."""
        value = self.body.get(name, self.query.get(name, default))
        if not isinstance(value, str):
            raise InvalidParamsError(f"{name} must be a string")
        return value


def reach_of(caller: Principal, enabled: Collection[str]) -> Reach:
    """Return what a caller may see by its roles; only roles in ``enabled`` count."""
    if SYSTEM_OPERATOR in caller.roles and SYSTEM_OPERATOR in enabled:
        return "all"
    return "tenant" if TENANT_OPERATOR in caller.roles and TENANT_OPERATOR in enabled else "own"


def acting(caller: Principal, query: Mapping[str, str], *, reach: Reach, needs_all: bool) -> Principal:
    """Return the owner that a call concerns. Raises MethodNotFoundError if the caller may not see it."""
    if needs_all and reach != "all":
        raise MethodNotFoundError("there is nothing at this path")
    tenant, owner, asked = query.get("tenant"), query.get("owner"), query.get("askedTenant")
    if query.get("all") == "true":
        if reach == "own":
            raise MethodNotFoundError("there is nothing at this path")
        if tenant or owner or asked:
            raise InvalidParamsError("all covers every owner; don't combine it with a tenant or an owner")
        return caller
    if asked and tenant:
        raise InvalidParamsError("pass tenant (authenticated) or askedTenant (named by the caller), not both")
    if tenant is None and owner is None:
        if not asked:
            return caller
        if caller.tenant:
            raise MethodNotFoundError("there is nothing at this path")
        return replace(caller, asked_tenant=asked)
    if tenant is None and not asked and reach != "all":
        tenant = caller.tenant
    wanted = Principal(owner=owner or "", tenant=tenant or "", asked_tenant=asked or "")
    if wanted.partition != caller.partition and not sees(caller, wanted.partition, reach):
        raise MethodNotFoundError("there is nothing at this path")
    return wanted


def sees(caller: Principal, partition: str, reach: Reach) -> bool:
    """Return whether the caller may see this partition."""
    if reach == "all" or partition == caller.partition:
        return True
    if reach == "own":
        return False
    tenant, divided, owner = partition.partition("/")
    if "~" in tenant and tenant != ANONYMOUS.partition:  # a shortened name: the tenant is not readable
        return False
    if not caller.tenant:  # owners without a tenant: "alice", and "alice//acme" for a tenant that alice names herself
        return not divided or owner.startswith("/")
    anyone = Principal(tenant=caller.tenant).partition  # "acme/"
    return f"{tenant}/" == anyone and bool(divided) and not owner.startswith("/")


# ---------------------------------------------------------------------------------------------------------------- pages


Item = TypeVar("Item")

READS = 200  # limit for one page of all partitions; then the page may be short, and its token continues it

Read = Callable[[Scope, int, str | None], Awaitable[tuple[Sequence[Item], str | None]]]
"""Reads items of a scope, given a limit and the previous cursor. Returns the items and the next cursor."""


async def page_of(kernel: Kernel, call: OpsCall, read: Read[Item]) -> tuple[list[Item], str]:
    """Return the items of the requested page, and the token of the next page. Raises BadCursor."""
    size, token = call.number("pageSize", 50, low=1, high=100), call.query.get("pageToken") or None
    if call.everywhere:
        return await _everywhere(kernel, call, read, size, token)
    items, cursor = await read(kernel.scoped(call.principal.partition), size, token)
    return list(items), cursor or ""


async def _everywhere(
    kernel: Kernel, call: OpsCall, read: Read[Item], size: int, token: str | None
) -> tuple[list[Item], str]:
    """Read the scopes in order. A token names the partition where the page ended, and the cursor within it."""
    after, cursor = _place(token, call) if token else ("", None)
    found, reads = list[Item](), 0
    async for scope in _from(kernel, after, inside=cursor is not None):
        if not sees(call.caller, scope.partition, call.reach):
            continue
        while True:
            items, cursor = await read(scope, size - len(found), cursor)
            found += items
            reads += 1
            full = len(found) >= size or reads >= READS
            if full or not cursor:
                break
        if cursor:
            return found, _token(scope, cursor)
        if full:
            return found, _token(scope, "") if await kernel.partitions(after=scope.partition, limit=1) else ""
    return found, ""


async def _from(kernel: Kernel, place: str, *, inside: bool) -> AsyncIterator[Scope]:
    if inside:
        yield kernel.scoped(place)
    async for scope in kernel.scopes(after=place):
        yield scope


def _token(scope: Scope, cursor: str) -> str:
    return urlsafe_b64encode(to_json([scope.partition, cursor])).decode()


def _place(token: str, call: OpsCall) -> tuple[str, str | None]:
    """Decode a token. Raises BadCursor, also for a partition that the caller may not see."""
    try:
        partition, cursor = from_json(urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError):
        raise BadCursor from None
    if not (isinstance(partition, str) and isinstance(cursor, str)) or not sees(call.caller, partition, call.reach):
        raise BadCursor
    return partition, cursor or None


# ------------------------------------------------------------------------------------------------------------ responses


def page_asked(call: OpsCall) -> dict[str, Any]:
    """Return the requested page of a list, as arguments of the inspections."""
    limit = call.number("pageSize", 50, low=1, high=100)
    return {"limit": limit, "cursor": call.query.get("pageToken") or None}


def entries_asked(call: OpsCall) -> dict[str, Any]:
    """Return the requested part of a log, as arguments of the inspections."""
    after = call.number("after", 0, low=0, high=2**53) if "after" in call.query else None
    return {"after": after, "limit": call.number("limit", 100, low=1, high=500)}


def json_found(found: Any, kind: str) -> bytes:
    """Return the response. Raises MethodNotFoundError for None."""
    if found is None:
        raise MethodNotFoundError(f"there is no such {kind}")
    return json_of(found)


def json_of(value: Any) -> bytes:
    """Return the JSON of any text that a store can hold, including lone surrogates."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
