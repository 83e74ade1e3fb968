"""Runs modules as tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.apcore.access import Access
from holdfast.apcore.admission import SkillAdmission
from holdfast.apcore.catalog import Catalog
from holdfast.tasks.context import TaskContext
from holdfast.tasks.worker import Worker


class ApcoreWorker(Worker):
    """Calls the module that a message chooses, through the executor.

    server = A2AServer(worker=worker, admission=worker.admission, agent_card=builder.build(), …)
    catalog.on_change(lambda: server.replace_card(builder.build))

    ``default_skill`` is called by messages that choose none. ``files_at`` says where clients reach the server, for
    links to large files.
    """

    def __init__(
        self,
        catalog: Catalog,
        executor: Any,
        *,
        execution_timeout: float = 300.0,
        default_skill: str | None = None,
        allow_unapproved: bool = False,
        files_at: Callable[[], str] | None = None,
    ) -> None:
        self.catalog = catalog
        self.executor = executor
        self.access = Access(executor)
        self.admission = SkillAdmission(catalog, self.access, default_skill=default_skill)

    async def handle(self, ctx: TaskContext) -> None:
        raise NotImplementedError
