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
    from keelbolt.apcore.catalog import SkillCatalog
    from keelbolt.apcore.delegation import agent
    from keelbolt.apcore.discovery import load_extensions
    from keelbolt.apcore.elicitation import ElicitResult, elicit, report_progress
    from keelbolt.apcore.errors_map import ErrorMapper
    from keelbolt.apcore.memory_task_store import InMemoryTaskStore
    from keelbolt.apcore.openapi import openapi_backend
    from keelbolt.apcore.schemas import SchemaConverter
    from keelbolt.apcore.server import ApcoreServer
    from keelbolt.apcore.serving import async_serve, serve
    from keelbolt.apcore.skills import SkillMapper
    from keelbolt.apcore.task_storage import TaskStoreStorage
    from keelbolt.apcore.task_store import TaskStore
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

_NAMES = {
    "keelbolt.apcore.approvals": ("CallerApproves",),
    "keelbolt.apcore.card": ("AgentCardBuilder",),
    "keelbolt.apcore.catalog": ("SkillCatalog",),
    "keelbolt.apcore.delegation": ("agent",),
    "keelbolt.apcore.discovery": ("load_extensions",),
    "keelbolt.apcore.elicitation": ("ElicitResult", "elicit", "report_progress"),
    "keelbolt.apcore.errors_map": ("ErrorMapper",),
    "keelbolt.apcore.memory_task_store": ("InMemoryTaskStore",),
    "keelbolt.apcore.openapi": ("openapi_backend",),
    "keelbolt.apcore.schemas": ("SchemaConverter",),
    "keelbolt.apcore.serving": ("async_serve", "serve"),
    "keelbolt.apcore.server": ("ApcoreServer",),
    "keelbolt.apcore.skills": ("SkillMapper",),
    "keelbolt.apcore.task_storage": ("TaskStoreStorage",),
    "keelbolt.apcore.task_store": ("TaskStore",),
    "keelbolt.apcore.worker": ("ApcoreWorker",),
    "keelbolt.client": ("A2AClient",),
}
__getattr__ = lazy_names(__name__, {name: module for module, names in _NAMES.items() for name in names})
