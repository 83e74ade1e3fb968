"""Agent of a2a-sdk 1.3.0: both versions over JSON-RPC and REST, 1.0 over gRPC. Arguments: URL, port, gRPC port."""

import asyncio
import sys

import grpc
import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2, a2a_pb2_grpc
from starlette.applications import Starlette

url, port, grpc_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
Part = a2a_pb2.Part


class Echo(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "say":
            message = a2a_pb2.Message(message_id="m", role="ROLE_AGENT", parts=[Part(text=rest)])
            await event_queue.enqueue_event(message)
            return
        if context.current_task is None:
            task = a2a_pb2.Task(id=context.task_id, context_id=context.context_id)
            task.status.state = a2a_pb2.TaskState.TASK_STATE_SUBMITTED
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        if word == "stream":
            count, _, pause = rest.partition(" ")
            for number in range(int(count)):
                await updater.add_artifact([Part(text=f"{number} ")], artifact_id="numbers", append=number > 0)
                await asyncio.sleep(float(pause or 0))
            await updater.add_artifact([], artifact_id="numbers", append=True, last_chunk=True)
        elif word == "wait":
            await asyncio.sleep(600)
        elif word == "files":
            data = Part()
            data.data.struct_value.update({"n": 1})
            given = [part for part in context.message.parts if not part.text]
            raw = Part(raw=b"\x00\x01", filename="a.bin", media_type="application/octet-stream")
            link = Part(url="https://example.com/f", filename="f")
            await updater.add_artifact([raw, link, data, *given], artifact_id="files")
        elif word == "ask" and context.current_task is None:
            await updater.requires_input(updater.new_agent_message([Part(text="Which one?")]))
            return
        elif word in ("fail", "reject"):
            say = updater.new_agent_message([Part(text="It does not work.")])
            await (updater.failed(say) if word == "fail" else updater.reject(say))
            return
        await updater.complete(updater.new_agent_message([Part(text=f"You said: {text}")]))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = a2a_pb2.AgentCard(name="sdk_1", description="Echo", version="1.0.0")
card.capabilities.streaming = True
card.capabilities.push_notifications = True
card.capabilities.extended_agent_card = True
card.default_input_modes.append("text/plain")
card.default_output_modes.append("text/plain")
for version in ("1.0", "0.3"):
    card.supported_interfaces.add(url=f"{url}/", protocol_binding="JSONRPC", protocol_version=version)
    card.supported_interfaces.add(url=url, protocol_binding="HTTP+JSON", protocol_version=version)
card.supported_interfaces.add(url=f"127.0.0.1:{grpc_port}", protocol_binding="GRPC", protocol_version="1.0")
handler = DefaultRequestHandler(
    agent_executor=Echo(),
    task_store=InMemoryTaskStore(),
    agent_card=card,
    push_config_store=InMemoryPushNotificationConfigStore(),
    extended_agent_card=card,
)
app = Starlette(
    routes=[
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
        *create_rest_routes(handler, enable_v0_3_compat=True),
    ]
)


async def main():
    server = grpc.aio.server()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()


asyncio.run(main())
