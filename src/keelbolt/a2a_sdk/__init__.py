"""Our storage under the official SDK's server: durable tasks, whose cost does not grow, by changing one line.

    async with sdk_stores("sqlite:///agent.db") as stores:
        handler = DefaultRequestHandlerV2(
            agent_executor=…, agent_card=…,
            task_store=stores.tasks, event_stream=stores.events, push_config_store=stores.push_configs,
        )

Needs the package ``a2a-sdk`` (1.3 or newer), which comes with the extra ``grpc``.
"""

from __future__ import annotations

from importlib.util import find_spec

from keelbolt.errors import MissingExtra

if find_spec("a2a") is None:
    raise MissingExtra("grpc", "a2a-sdk")

from keelbolt.a2a_sdk.stores import SdkStores, sdk_stores

__all__ = ["SdkStores", "sdk_stores"]
