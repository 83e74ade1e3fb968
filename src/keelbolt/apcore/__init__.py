"""apcore modules as an A2A agent.

    from keelbolt.apcore import serve

    serve(registry)  # or an Executor, or the path of an extensions directory

Names are loaded when they are first used; those that need apcore itself raise MissingExtra without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keelbolt.lazy import lazy_names

if TYPE_CHECKING:
    from keelbolt.apcore.approvals import CallerApproves
    from keelbolt.apcore.card import AgentCardBuilder
    from keelbolt.apcore.catalog import SkillCatalog, SkillMapper
    from keelbolt.apcore.delegation import agent
    from keelbolt.apcore.elicitation import ElicitResult, elicit, report_progress
    from keelbolt.apcore.errors_map import ErrorMapper
    from keelbolt.apcore.extensions import load_extensions
    from keelbolt.apcore.openapi import openapi_backend
    from keelbolt.apcore.schemas import SchemaConverter
    from keelbolt.apcore.server import ApcoreServer, async_serve, serve
    from keelbolt.apcore.task_storage import TaskStoreStorage
    from keelbolt.apcore.task_store import InMemoryTaskStore, TaskStore
    from keelbolt.apcore.worker import ApcoreWorker
    from keelbolt.client import A2AClient

__all__ = [
    "A2AClient",
    "AgentCardBuilder",
    "ApcoreServer",
    "ApcoreWorker",
    "CallerApproves",
    "ElicitResult",
    "ErrorMapper",
    "InMemoryTaskStore",
    "SchemaConverter",
    "SkillCatalog",
    "SkillMapper",
    "TaskStore",
    "TaskStoreStorage",
    "agent",
    "async_serve",
    "elicit",
    "load_extensions",
    "openapi_backend",
    "report_progress",
    "serve",
]

_HOMES = {
    "A2AClient": "keelbolt.client",
    "AgentCardBuilder": "keelbolt.apcore.card",
    "ApcoreServer": "keelbolt.apcore.server",
    "ApcoreWorker": "keelbolt.apcore.worker",
    "CallerApproves": "keelbolt.apcore.approvals",
    "ElicitResult": "keelbolt.apcore.elicitation",
    "ErrorMapper": "keelbolt.apcore.errors_map",
    "InMemoryTaskStore": "keelbolt.apcore.task_store",
    "SchemaConverter": "keelbolt.apcore.schemas",
    "SkillCatalog": "keelbolt.apcore.catalog",
    "SkillMapper": "keelbolt.apcore.catalog",
    "TaskStore": "keelbolt.apcore.task_store",
    "TaskStoreStorage": "keelbolt.apcore.task_storage",
    "agent": "keelbolt.apcore.delegation",
    "async_serve": "keelbolt.apcore.server",
    "elicit": "keelbolt.apcore.elicitation",
    "load_extensions": "keelbolt.apcore.extensions",
    "openapi_backend": "keelbolt.apcore.openapi",
    "report_progress": "keelbolt.apcore.elicitation",
    "serve": "keelbolt.apcore.server",
}
__getattr__ = lazy_names(__name__, _HOMES)
