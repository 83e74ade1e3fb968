"""apcore modules as an A2A agent.

    from holdfast.apcore import serve

    serve(registry)  # or an Executor, or the path of an extensions directory

Names are loaded when they are first used; those that need apcore itself raise MissingExtra without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.apcore.approvals import CallerApproves
    from holdfast.apcore.card import AgentCardBuilder
    from holdfast.apcore.catalog import Catalog
    from holdfast.apcore.delegation import agent
    from holdfast.apcore.discovery import load_extensions
    from holdfast.apcore.errors_map import ErrorMapper
    from holdfast.apcore.memory_task_store import InMemoryTaskStore
    from holdfast.apcore.schemas import SchemaConverter
    from holdfast.apcore.server import ApcoreServer
    from holdfast.apcore.serving import async_serve, serve
    from holdfast.apcore.skills import SkillMapper
    from holdfast.apcore.task_storage import TaskStoreStorage
    from holdfast.apcore.task_store import TaskStore
    from holdfast.apcore.worker import ApcoreWorker
    from holdfast.client import A2AClient

__all__ = [
    "A2AClient",
    "AgentCardBuilder",
    "ApcoreServer",
    "ApcoreWorker",
    "CallerApproves",
    "Catalog",
    "ErrorMapper",
    "InMemoryTaskStore",
    "SchemaConverter",
    "SkillMapper",
    "TaskStore",
    "TaskStoreStorage",
    "agent",
    "async_serve",
    "load_extensions",
    "serve",
]

_NAMES = {
    "holdfast.apcore.approvals": ("CallerApproves",),
    "holdfast.apcore.card": ("AgentCardBuilder",),
    "holdfast.apcore.catalog": ("Catalog",),
    "holdfast.apcore.delegation": ("agent",),
    "holdfast.apcore.discovery": ("load_extensions",),
    "holdfast.apcore.errors_map": ("ErrorMapper",),
    "holdfast.apcore.memory_task_store": ("InMemoryTaskStore",),
    "holdfast.apcore.schemas": ("SchemaConverter",),
    "holdfast.apcore.serving": ("async_serve", "serve"),
    "holdfast.apcore.server": ("ApcoreServer",),
    "holdfast.apcore.skills": ("SkillMapper",),
    "holdfast.apcore.task_storage": ("TaskStoreStorage",),
    "holdfast.apcore.task_store": ("TaskStore",),
    "holdfast.apcore.worker": ("ApcoreWorker",),
    "holdfast.client": ("A2AClient",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'holdfast.apcore' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
