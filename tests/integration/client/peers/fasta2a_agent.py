"""Agent of fasta2a 2.1.1: JSON-RPC of 1.0. Every send returns `submitted`. Arguments: public URL, port."""

import asyncio
import sys
import uuid
from contextlib import asynccontextmanager

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

url, port = sys.argv[1], int(sys.argv[2])


def artifact(*parts):
    return {"artifact_id": "numbers", "parts": list(parts)}


class Echo(Worker):
    async def _loop(self):
        # Its own loop runs one task at a time, so a waiting task could never be cancelled.
        async with asyncio.TaskGroup() as tasks:
            async for operation in self.broker.receive_task_operations():
                tasks.create_task(self._handle_task_operation(operation))

    async def run_task(self, params):
        task_id, context_id = params["id"], params["context_id"]
        text = "".join(part.get("text", "") for part in params["message"]["parts"])
        word, _, rest = text.partition(" ")
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        made, state, say = [], "completed", f"You said: {text}"
        if word == "stream":
            count, _, pause = rest.partition(" ")
            for number in range(int(count)):
                made.append({"text": f"{number} "})
                chunk = artifact(made[-1])
                await self.publish_artifact(task_id, context_id, chunk, append=number > 0, last_chunk=False)
                await asyncio.sleep(float(pause or 0))
        elif word == "wait":
            while (await self.storage.load_task(task_id))["status"]["state"] != "canceled":
                await asyncio.sleep(0.02)
            return
        elif word == "files":
            made = [
                {"raw": "AAE=", "filename": "a.bin", "media_type": "application/octet-stream"},
                {"url": "https://example.com/f", "filename": "f"},
                {"data": {"n": 1}},
                *(part for part in params["message"]["parts"] if "text" not in part),
            ]
            await self.publish_artifact(task_id, context_id, artifact(*made))
        elif word in ("fail", "reject", "ask"):
            state = {"fail": "failed", "reject": "rejected", "ask": "input-required"}[word]
            say = "Which one?" if word == "ask" else "It does not work."
        message = {"role": "agent", "parts": [{"text": say}], "message_id": str(uuid.uuid4()), "kind": "message"}
        artifacts = [artifact(*made)] if made else None
        await self.storage.update_task(task_id, state=state, new_artifacts=artifacts, new_messages=[message])

    async def cancel_task(self, params):
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history):
        return []

    def build_artifacts(self, result):
        return []


storage, broker = InMemoryStorage(), InMemoryBroker()


@asynccontextmanager
async def lifespan(app):
    async with app.task_manager, Echo(broker=broker, storage=storage).run():
        yield


app = FastA2A(storage=storage, broker=broker, name="fasta2a", url=url, lifespan=lifespan)
uvicorn.run(app, port=port, log_level="warning", timeout_graceful_shutdown=1)
