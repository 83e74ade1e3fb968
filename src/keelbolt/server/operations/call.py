"""One call of the operations API: who, for whom, with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from keelbolt.auth import Principal
from keelbolt.errors import InvalidParamsError, MethodNotFoundError, TaskNotFoundError
from keelbolt.tasks.ids import is_task_id

OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class OpsCall:
    """``principal`` is whose tasks are meant: the caller's own, or those an operator asks for.

    ``by`` is the caller's name, which the log keeps: what an operator does is not noted as the owner's own doing.
    ``operator``: whether the caller is one.
    """

    principal: Principal
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    after: int | None
    base: str
    by: str = ""
    operator: bool = False

    @property
    def task_id(self) -> str:
        """Raises TaskNotFoundError for what can't be the id of any."""
        task_id = self.names["task_id"]
        if not is_task_id(task_id):
            raise TaskNotFoundError(task_id)
        return task_id

    def number(self, name: str, default: int, *, low: int, high: int) -> int:
        """A number from the query or the body. Raises InvalidParamsError."""
        value: Any = self.body.get(name, self.query.get(name, default))
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidParamsError(f"{name} is a number from {low} to {high}")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string from the query or the body. Raises InvalidParamsError."""
        value = self.body.get(name, self.query.get(name, default))
        if not isinstance(value, str):
            raise InvalidParamsError(f"{name} is a string")
        return value


def acting(caller: Principal, query: Mapping[str, str], *, operator: bool, needs_operator: bool) -> Principal:
    """Whose tasks a call means. For who may not ask, what it asks for is not there."""
    if needs_operator and not operator:
        raise MethodNotFoundError("there is nothing at this path")
    tenant, owner, asked = query.get("tenant"), query.get("owner"), query.get("askedTenant")
    if asked and tenant:
        raise InvalidParamsError("tenant is the one that is vouched for, askedTenant the other; name one of them")
    if tenant is None and owner is None:
        if not asked:
            return caller
        if caller.tenant:
            raise MethodNotFoundError("there is nothing at this path")
        return replace(caller, asked_tenant=asked)
    wanted = Principal(owner=owner or "", tenant=tenant or "", asked_tenant=asked or "")
    if wanted.partition != caller.partition and not operator:
        raise MethodNotFoundError("there is nothing at this path")
    return wanted
