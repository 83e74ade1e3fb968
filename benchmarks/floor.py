"""The floor of `python -m benchmarks compare`: the least code that does an echo agent's work on the same parts.

    python -m benchmarks.floor memory:           parses the JSON-RPC request and returns a completed task
    python -m benchmarks.floor sqlite:///PATH    also writes a task row and two event rows first, fsynced

Requests that arrive while SQLite syncs share the next transaction. The program prints its port.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import socket
import sqlite3
import sys
import threading
import time

import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send

BATCH = 512  # requests in one transaction

SCHEMA = """
CREATE TABLE task (id TEXT PRIMARY KEY, state TEXT, body BLOB);
CREATE TABLE event (task TEXT, seq INTEGER, body BLOB, PRIMARY KEY (task, seq)) WITHOUT ROWID;
"""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_serial = itertools.count()


def new_id() -> str:
    """Return a time-ordered id, so that inserts stay on the last page."""
    return f"{time.time_ns():016x}-{next(_serial):08x}"


class Floor:
    """An ASGI application; ``writer`` stores each task before its response is sent."""

    def __init__(self, writer: Writer | None) -> None:
        self._writer = writer

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            event = await receive()
            body += event["body"]
            more = event["more_body"]
        call = _decode(body)
        message = call["params"]["message"]
        reply = {
            "role": "ROLE_AGENT",
            "messageId": new_id(),
            "parts": [{"text": "echo: " + message["parts"][0]["text"]}],
        }
        task_id = new_id()
        task = {
            "id": task_id,
            "contextId": new_id(),
            "history": [message],
            "status": {"state": "TASK_STATE_COMPLETED", "message": reply},
        }
        response = _encode({"jsonrpc": "2.0", "id": call["id"], "result": {"task": task}})
        if self._writer is not None:
            await self._writer.write(task_id, response)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(response))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": response})


class Writer:
    """One thread that writes all queued rows in one transaction (WAL, synchronous=FULL)."""

    def __init__(self, path: str) -> None:
        self._queue: queue.SimpleQueue[tuple[str, bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(SCHEMA)
        threading.Thread(target=self._run, daemon=True).start()

    def write(self, task: str, body: bytes) -> asyncio.Future[None]:
        """Return when the rows are on disk."""
        written = asyncio.get_running_loop().create_future()
        self._queue.put((task, body, written))
        return written

    def _run(self) -> None:
        execute, executemany = self._database.execute, self._database.executemany
        while True:
            batch = [self._queue.get()]
            while len(batch) < BATCH and not self._queue.empty():
                batch.append(self._queue.get())
            execute("BEGIN IMMEDIATE")
            executemany("INSERT INTO task VALUES (?, 'completed', ?)", [(task, body) for task, body, _ in batch])
            rows = [(task, seq, body) for task, body, _ in batch for seq in (1, 2)]
            executemany("INSERT INTO event VALUES (?, ?, ?)", rows)
            execute("COMMIT")
            futures = [written for _, _, written in batch]
            futures[0].get_loop().call_soon_threadsafe(_resolve, futures)


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # the client may have disconnected
            future.set_result(None)


def main(url: str) -> None:
    """Serve until killed."""
    writer = None if url == "memory:" else Writer(url.removeprefix("sqlite:///"))
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        Floor(writer), loop="uvloop", http="httptools", ws="none", lifespan="off", access_log=False, log_level="error"
    )
    print(bound.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main(sys.argv[1])
