"""Whether a message to a module is let in: which skill it means, whether the caller may, whether the input fits."""

from __future__ import annotations

from holdfast.apcore.access import Access
from holdfast.apcore.catalog import Catalog
from holdfast.protocol.requests import SendMessageRequest
from holdfast.server.caller import Caller
from holdfast.tasks.manager import TaskManager


class SkillAdmission:
    """The door of an agent whose skills are modules."""

    def __init__(self, catalog: Catalog, access: Access, *, default_skill: str | None = None) -> None:
        self.catalog = catalog

    async def admit(self, request: SendMessageRequest, caller: Caller, tasks: TaskManager) -> str | None:
        return None
