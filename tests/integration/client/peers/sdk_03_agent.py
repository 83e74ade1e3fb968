"""Agent of a2a-sdk 0.3.26: JSON-RPC, REST and gRPC. Arguments: URL, port, gRPC port."""

import asyncio
import sys

import grpc
import uvicorn
from a2a.grpc import a2a_pb2_grpc
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TextPart,
)

url, port, grpc_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def text_part(text):
    return Part(root=TextPart(text=text))


class Echo(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "say":
            await event_queue.enqueue_event(Message(message_id="m", role=Role.agent, parts=[text_part(rest)]))
            return
        if context.current_task is None:
            status = TaskStatus(state=TaskState.submitted)
            await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=status))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        if word == "stream":
            count, _, pause = rest.partition(" ")
            for number in range(int(count)):
                await updater.add_artifact([text_part(f"{number} ")], artifact_id="numbers", append=number > 0)
                await asyncio.sleep(float(pause or 0))
            await updater.add_artifact([], artifact_id="numbers", append=True, last_chunk=True)
        elif word == "wait":
            await asyncio.sleep(600)
        elif word == "files":
            raw = FilePart(file=FileWithBytes(bytes="AAE=", name="a.bin", mime_type="application/octet-stream"))
            link = FilePart(file=FileWithUri(uri="https://example.com/f", name="f"))
            given = [part for part in context.message.parts if not isinstance(part.root, TextPart)]
            made = [Part(root=raw), Part(root=link), Part(root=DataPart(data={"n": 1})), *given]
            await updater.add_artifact(made, artifact_id="files")
        elif word == "ask" and context.current_task is None:
            await updater.requires_input(updater.new_agent_message([text_part("Which one?")]))
            return
        elif word in ("fail", "reject"):
            say = updater.new_agent_message([text_part("It does not work.")])
            await (updater.failed(say) if word == "fail" else updater.reject(say))
            return
        await updater.complete(updater.new_agent_message([text_part(f"You said: {text}")]))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="sdk_03",
    description="Echo",
    version="1.0.0",
    url=f"{url}/",
    preferred_transport="JSONRPC",
    additional_interfaces=[
        AgentInterface(url=url, transport="HTTP+JSON"),
        AgentInterface(url=f"127.0.0.1:{grpc_port}", transport="GRPC"),
    ],
    capabilities=AgentCapabilities(streaming=True, push_notifications=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="echo", name="echo", description="echo", tags=["echo"])],
    supports_authenticated_extended_card=True,
)
handler = DefaultRequestHandler(
    agent_executor=Echo(), task_store=InMemoryTaskStore(), push_config_store=InMemoryPushNotificationConfigStore()
)
app = A2ARESTFastAPIApplication(card, handler, extended_agent_card=card).build(agent_card_url="/rest-card.json")
jsonrpc = A2AStarletteApplication(card, handler, extended_agent_card=card)
jsonrpc.add_routes_to_app(app)


async def main():
    server = grpc.aio.server()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()


asyncio.run(main())
