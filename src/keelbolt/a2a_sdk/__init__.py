"""Keelbolt's storage for the official SDK's server: durable tasks at constant cost per write, by changing one line.

    async with sdk_stores("sqlite:///agent.db") as stores:
        handler = DefaultRequestHandlerV2(
            agent_executor=…, agent_card=…,
            task_store=stores.tasks, event_stream=stores.events, push_config_store=stores.push_configs,
        )

Needs the package ``a2a-sdk`` (1.3 or newer), which comes with the extra ``grpc``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keelbolt.lazy import Needs, lazy_names

if TYPE_CHECKING:
    from keelbolt.a2a_sdk.stores import SdkStores, sdk_stores

__all__ = ["SdkStores", "sdk_stores"]

_HOMES = {
    "SdkStores": "keelbolt.a2a_sdk.stores",
    "sdk_stores": "keelbolt.a2a_sdk.stores",
}

__getattr__ = lazy_names(__name__, _HOMES, Needs("a2a", "grpc", "a2a-sdk"))  # ``families`` needs no SDK
