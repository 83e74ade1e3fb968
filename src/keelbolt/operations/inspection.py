"""The operations API for all declared families: lists, counts, one record, one subject."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from keelbolt.data import Subject
from keelbolt.data.inspection import Inspection
from keelbolt.errors import InvalidName, InvalidParamsError, InvalidValue, MethodNotFoundError, SubjectNotFound
from keelbolt.operations.call import OpsCall
from keelbolt.operations.shapes import entries_asked, json_of, page_asked
from keelbolt.tasks.engine import TaskEngine


class InspectionOperations:
    """The handlers of the routes for families. Only for operators, because a family holds the data of all owners."""

    def __init__(self, engine: TaskEngine) -> None:
        self._kernel = engine.kernel
        self._made: Inspection | None = None

    @property
    def _look(self) -> Inspection:
        if self._made is None:  # the faces are loaded on first use
            self._made = Inspection(self._kernel)
        return self._made

    async def data_families(self, _call: OpsCall) -> bytes:
        return json_of({"families": self._look.families()})

    async def data_records(self, call: OpsCall) -> bytes:
        return await _found(self._look.records(self._family(call), **_whose(call), **page_asked(call)))

    async def data_count(self, call: OpsCall) -> bytes:
        return await _found(self._look.count(self._family(call), **_whose(call)))

    def _family(self, call: OpsCall) -> str:
        known = [each["family"] for each in self._look.families()]
        if (name := call.names["family"]) not in known:
            raise MethodNotFoundError(f"there is no such family; there are {', '.join(known)}")
        return name

    async def data_subject(self, call: OpsCall) -> bytes:
        subject = _subject(call)
        if subject is None:
            raise InvalidParamsError("kind and id are required; they name a subject")
        return await _found(self._look.describe(subject))

    async def data_record(self, call: OpsCall) -> bytes:
        return await _found(self._look.show(call.names["data_ref"]))

    async def data_entries(self, call: OpsCall) -> bytes:
        return await _found(self._look.entries(call.names["data_ref"], call.names["log"], **entries_asked(call)))


async def _found(look: Awaitable[Any]) -> bytes:
    try:
        return json_of(await look)
    except SubjectNotFound as missing:
        raise MethodNotFoundError(str(missing)) from None
    except (InvalidValue, InvalidName) as wrong:
        raise InvalidParamsError(str(wrong)) from None


def _subject(call: OpsCall) -> Subject | None:
    kind, id_ = call.query.get("kind"), call.query.get("id")
    if kind is None and id_ is None:
        return None
    if not kind or not id_:
        raise InvalidParamsError("kind and id must be passed together; they name a subject")
    return Subject(kind=kind, id=id_, tenant=call.text("tenant"), owner=call.text("owner"))


def _whose(call: OpsCall) -> dict[str, Any]:
    subject = _subject(call)
    if subject is not None:
        return {"of": subject}
    return {"tenant": call.text("tenant"), "owner": call.text("owner")}
