"""Keelbolt's storage for the official SDK's server: durable tasks at constant cost per write, by changing one line.

    async with sdk_stores("sqlite:///agent.db") as stores:
        handler = DefaultRequestHandlerV2(
            agent_executor=…, agent_card=…,
            task_store=stores.tasks, event_stream=stores.events, push_config_store=stores.push_configs,
        )

Needs the package ``a2a-sdk`` (1.3 or newer), which comes with the extra ``grpc``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from keelbolt.errors import MissingExtra

if TYPE_CHECKING:
    from keelbolt.a2a_sdk.stores import SdkStores, sdk_stores

__all__ = ["SdkStores", "sdk_stores"]

_NAMES = {"SdkStores": "stores", "sdk_stores": "stores"}


def __getattr__(name: str) -> Any:
    """Import a name on first use. The declarations in ``families`` need no SDK."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("a2a") is None:
        raise MissingExtra("grpc", "a2a-sdk")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
