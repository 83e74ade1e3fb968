"""Any request to any entry gets a documented response, leaks nothing, and harms no other caller."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from keelbolt.auth import AnyOf, Principal, TokenAuthenticator
from keelbolt.grpc.library import aio, grpc
from keelbolt.kernel import new_id
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.server.alice import SECRET_WORDS, alices_things, card
from tests.integration.server.asgi import Headers, Reply, ask, call
from tests.integration.server.calls import METHODS
from tests.integration.server.loopback import served, talked
from tests.integration.server.mutations import Asked, calls, operations_requests, rest_requests, rpc_calls
from tests.integration.server.people import authenticator, bearer
from tests.integration.tasks.conftest import ENGINES, store_url

pytest_plugins = ["keelbolt.testing.pytest"]

T = TypeVar("T")

NOWHERE = "the-token-of-a-caller-without-tenant"
SHORT, FULL = 200, 1_400  # requests per binding and engine
ANSWERS = {200, 204, 304, 400, 401, 404, 408, 413, 415, 431}
CODES = {
    grpc.StatusCode[name]
    for name in ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED")
}
LEAKS = re.compile(
    rb"Traceback|File \"|site-packages|\.py\b|SELECT |INSERT |sqlite|asyncpg|pydantic|asyncio|Exception|0x[0-9a-f]{6}"
    rb"|object at |NoneType|<class "
)


async def work(ctx: TaskContext) -> None:
    """A worker that repeats its message in many forms."""
    text = ctx.user_text
    if text.startswith("input"):
        await ctx.request_input("More?")
        return
    if text.startswith(("completed", "working")):
        await ctx.complete("Done.")
        return
    await ctx.emit_data_artifact({"parts": len(ctx.message.parts), "data": ctx.data_parts, "about": ctx.metadata})
    await ctx.complete(text or "Nothing.")


class Records(logging.Handler):
    """Collects logged errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record)


class Fuzzed:
    """An agent that runs across the examples, with a task of mallory and tasks of alice."""

    def __init__(self, storage: str) -> None:
        self.runner = asyncio.Runner()
        self.outcomes: Counter[int] = Counter()  # HTTP statuses, and codes of JSON-RPC
        self.records = Records()
        self.server = A2AServer(
            worker=work,
            agent_card=card(),
            storage=storage,
            auth=AnyOf(authenticator(), TokenAuthenticator.of({NOWHERE: Principal("mallory")})),
            extended_card=lambda _caller: card(),
            settings=ServerSettings(heartbeat_stream_seconds=3600, blocking_seconds=5),
            grpc_port=0,
        )
        self.app = self.server.app
        self.known: dict[str, list[str]] = {}

    def run(self, doing: Awaitable[T]) -> T:
        async def wrapped() -> T:
            return await doing

        return self.runner.run(wrapped())

    def __enter__(self) -> Self:
        logging.getLogger("keelbolt").addHandler(self.records)
        self.run(self.server.__aenter__())
        self.run(self._prepare())
        self.run(self.called(Asked("gRPC", "/nothing", body=(b"",)), []))  # opens the channel
        self.tasks = len(self.run(_tasks()))
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.channel.close())
        self.run(self.server.__aexit__(None, None, None))
        self.runner.close()
        logging.getLogger("keelbolt").removeHandler(self.records)

    async def _prepare(self) -> None:
        assert self.server.routes.grpc is not None
        self.channel = aio.insecure_channel(f"127.0.0.1:{self.server.routes.grpc.at.port}")
        alices = (await alices_things(self.app)).values()
        self.alice = [alice.task for alice in alices]
        nowhere = [("authorization", f"Bearer {NOWHERE}")]
        mine = [
            await self.sent(text, who) for who in (bearer("mallory"), nowhere) for text in ["input"] * 7 + ["Hello"]
        ]
        page = await call(self.app, "ListTasks", {"pageSize": 1}, headers=bearer("mallory"))
        self.known = {
            "task": [*(task["id"] for task in mine), *self.alice, new_id()],
            "context": [*(task["contextId"] for task in mine), *(alice.context for alice in alices)],
            "config": ["config", "config", *(alice.config for alice in alices)],
            "page": [page.json["result"]["nextPageToken"], *(alice.page for alice in alices)],
        }

    async def sent(self, text: str, headers: Headers) -> dict[str, Any]:
        message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}]}
        reply = await call(self.app, "SendMessage", {"message": message}, headers=headers)
        task: dict[str, Any] = reply.json["result"]["task"]
        return task

    async def exchange(self, asked: Asked, who: Headers) -> Reply:
        return await ask(
            self.app,
            asked.method,
            asked.path,
            query=asked.query,
            headers=[*asked.headers, *who],
            body=asked.body,
            enough=lambda body: body.endswith(b"\n\n"),
        )

    async def called(self, asked: Asked, who: Headers) -> tuple[Any, bytes]:
        """Return the code and all bytes of a call's response; of a stream, the first."""
        metadata = [*asked.headers, *who]
        try:
            async with asyncio.timeout(20):
                if any(method.path == asked.path and method.operation.streams for method in METHODS):
                    stream = self.channel.unary_stream(asked.path)(asked.body[0], metadata=metadata)
                    answer = await stream.read()
                    stream.cancel()
                else:
                    answer = await self.channel.unary_unary(asked.path)(asked.body[0], metadata=metadata)
        except aio.AioRpcError as error:
            trailing = [value for _, value in error.trailing_metadata() or ()]
            words = [value if isinstance(value, bytes) else value.encode() for value in trailing]
            return error.code(), b" ".join([(error.details() or "").encode(), *words])
        return grpc.StatusCode.OK, answer if isinstance(answer, bytes) else b""

    def check_call(self, asked: Asked, who: Headers) -> None:
        code, answer = self.run(self.called(asked, who))
        self.outcomes[200 if code is grpc.StatusCode.OK else code.value[0]] += 1
        assert code in CODES, (code, answer)
        assert SECRET_WORDS.encode() not in answer
        assert code is grpc.StatusCode.OK or LEAKS.search(answer) is None, answer
        assert not self.records.found, self.records.found[0].getMessage()

    def check(self, asked: Asked, who: Headers, *, operator: bool = False) -> None:
        reply = self.run(self.exchange(asked, who))
        assert reply.status in ANSWERS
        assert operator or SECRET_WORDS.encode() not in reply.body
        sent = b"".join(asked.body) + asked.path.encode() + asked.query.encode("latin-1", "replace")
        sent += b"".join(value.encode("latin-1") for _, value in asked.headers)
        leaked = LEAKS.search(reply.body)
        assert leaked is None or leaked[0] in sent or operator, leaked
        outcome = reply.status
        for answer in _answers(reply):
            error = answer.get("error") if isinstance(answer, dict) else None
            outcome = error["code"] if isinstance(error, dict) else outcome
            assert outcome != -32603, answer
        self.outcomes[outcome] += 1
        assert not self.records.found, self.records.found[0].getMessage()

    def healthy(self) -> None:
        """Check that a plain request works, no task or stream is left, and alice's data is unchanged."""
        task = self.run(self.sent("Hello", bearer("mallory")))
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert self.server.routes.streams.open == 0
        deadline = time.monotonic() + 5
        while len(left := self.run(_tasks())) > self.tasks:
            assert time.monotonic() < deadline, left
            self.run(asyncio.sleep(0.1))
        for task_id in self.alice:
            reply = self.run(call(self.app, "GetTask", {"id": task_id}, headers=bearer("alice")))
            users = [message for message in reply.json["result"]["history"] if message["role"] == "ROLE_USER"]
            assert len(users) == 1
        assert (self.run(ask(self.app, "GET", "/health"))).status == 200
        assert not self.records.found


async def _tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def _answers(reply: Reply) -> list[Any]:
    if not reply.body:
        return []
    kind = reply.header("content-type") or ""
    return reply.events if kind.startswith("text/event-stream") else [reply.json]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fuzzed" in metafunc.fixturenames:
        engines = ENGINES if metafunc.config.getoption("--full") else ENGINES[:2]
        metafunc.parametrize("fuzzed", engines, indirect=True, scope="module")


@pytest.fixture(scope="module")
def fuzzed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    with Fuzzed(store_url(request.param, request, tmp_path_factory.mktemp("fuzz"))) as found:
        yield found


BINDINGS: dict[str, Callable[[dict[str, list[str]]], st.SearchStrategy[Asked]]] = {
    "JSON-RPC": rpc_calls,
    "REST": rest_requests,
    "operations": operations_requests,
    "gRPC": calls,
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("binding", BINDINGS)
def test_any_request_gets_a_documented_response(fuzzed: Fuzzed, binding: str, full: bool) -> None:
    """There is no 5xx, no hang and no data of others, and the agent is healthy afterwards."""
    operator = binding == "operations"

    @settings(
        max_examples=FULL if full else SHORT,
        deadline=None,
        derandomize=not full,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    @given(BINDINGS[binding](fuzzed.known), st.booleans())
    def answered(asked: Asked, by_other: bool) -> None:
        if operator and by_other:
            fuzzed.check(asked, bearer("olga", roles=["operator:all"]), operator=True)
        else:
            who = [("authorization", f"Bearer {NOWHERE}")] if by_other else bearer("mallory")
            (fuzzed.check_call if asked.method == "gRPC" else fuzzed.check)(asked, who)

    fuzzed.outcomes.clear()
    answered()
    fuzzed.healthy()
    if full:
        print(binding, sorted(fuzzed.outcomes.items()))
    assert fuzzed.outcomes[200] > 0.05 * fuzzed.outcomes.total()  # otherwise the test covers too little


LINES = st.sampled_from(
    [
        b"GET /tasks HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\n",
        b"POST /message:send HTTP/1.1\r\n",
        b"GET http://other.example/tasks HTTP/1.1\r\n",
        b"GET //health HTTP/1.0\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"CONNECT host:1 HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /%ff%00 HTTP/1.1\r\n",
        b"GET /tasks?a=%zz&\xff HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"host: localhost\r\n",
        b"content-type: application/json\r\n",
        b"content-length: 2\r\n",
        b"content-length: -1\r\n",
        b"content-length: 2\r\ncontent-length: 3\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: gzip, chunked\r\n",
        b"upgrade: websocket\r\nconnection: upgrade\r\n",
        b"expect: 100-continue\r\n",
        b"connection: close\r\n",
        b" folded: x\r\n",
        b"no colon\r\n",
        b"x: \x00\xff\r\n",
        b"\r\n",
        b"{}",
        b"2\r\n{}\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\n",
    ]
)


@pytest.mark.timeout(900)
def test_any_bytes_on_a_connection_get_a_response_or_a_close(full: bool) -> None:
    """Each response to malformed HTTP is valid, none is 5xx, and the next client is served."""
    server = A2AServer(worker=work, agent_card=card(), settings=ServerSettings(header_seconds=1.0, body_seconds=0.1))
    health = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"

    async def exchanged(port: int, lines: list[bytes]) -> None:
        replies = await asyncio.gather(
            *(talked(port, *lines[place:], patience=0.1) for place in range(min(len(lines), 4))), talked(port, health)
        )
        for reply in replies:
            assert not reply or reply.startswith(b"HTTP/1.1 ")
            assert re.search(rb"HTTP/1.1 5\d\d", reply) is None
            assert LEAKS.search(reply) is None
        assert replies[-1].startswith(b"HTTP/1.1 200 ")

    with asyncio.Runner() as runner:
        serving = served(server)
        port = runner.run(serving.__aenter__())

        @settings(max_examples=400 if full else 25, deadline=None, derandomize=not full, database=None)
        @given(st.lists(LINES | st.binary(max_size=8), min_size=1, max_size=8))
        def answered(lines: list[bytes]) -> None:
            runner.run(exchanged(port, lines))

        try:
            answered()
        finally:
            runner.run(serving.__aexit__(None, None, None))
