"""Section 9 of the design of apcore agents: errors of modules and of the protocol, and retries."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from apcore import errors
from pydantic import BaseModel

from keelbolt.client import A2AClient, A2AServerError
from tests.integration.apcore.calling import error_of, send, state, status_data, status_text, task_of
from tests.integration.apcore.modules import Echo, Giving, Total, registry_of
from tests.integration.apcore.serving import serving
from tests.integration.apcore.test_section_5 import answer
from tests.integration.apcore.test_section_7 import data, send_params, text
from tests.integration.apcore.test_section_10 import authenticator
from tests.integration.client.bad_agent import CARD_PATH, bad_agent, http
from tests.integration.server.asgi import ask, call

# -------------------------------------------------------------------------------------------- 9.1 errors of modules


@pytest.mark.parametrize(
    ("error", "code", "words", "kind"),
    [
        (errors.SchemaValidationError("Input validation failed"), -32602, "Invalid params", "SchemaValidationError"),
        (errors.ACLDeniedError("eve", "inner"), -32001, "Task not found", "TaskNotFoundError"),
        (errors.ModuleNotFoundError("inner"), -32601, "Skill not found: inner", "ModuleNotFoundError"),
        (errors.ModuleExecuteError("bad", "x"), -32603, "Internal error", "ModuleExecuteError"),
        (errors.ModuleTimeoutError("bad", 1), -32603, "Execution timed out", "ModuleTimeoutError"),
        (errors.InvalidInputError("no width"), -32602, "Invalid input: no width", "InvalidInputError"),
        (errors.CallDepthExceededError(9, 8, ["a"]), -32603, "Safety limit exceeded", "CallDepthExceededError"),
        (errors.CircularCallError("a", ["a", "a"]), -32603, "Safety limit exceeded", "CircularCallError"),
        (errors.CallFrequencyExceededError("a", 4, 3, ["a"]), -32603, "Safety limit exceeded", None),
        (ZeroDivisionError("x"), -32603, "Internal error", "ModuleExecuteError"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_section_9_1_errors_of_modules_follow_the_table(
    error: Exception, code: int, words: str, kind: str | None
) -> None:
    async with serving(registry_of(bad=Giving(error))) as app:
        task = await task_of(app, {})
        assert state(task) == "failed"
        found = status_data(task)
        assert (found["code"], found["message"]) == (code, words)
        assert found["data"]["type"] == (kind or type(error).__name__)


# --------------------------------------------------------------------------------- section 9.2: errors of the protocol


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"", -32700),
        (b"[" * 100_000, -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"message/send","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"message/nothing","params":{}}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"message/send"}', -32602),
    ],
)
async def test_section_9_2_errors_of_the_protocol(body: bytes, code: int) -> None:
    async with serving(registry_of(echo=Echo())) as app:
        reply = await ask(app, "POST", "/", headers=[("content-type", "application/json")], body=body)
        assert reply.json["error"]["code"] == code
        assert "recursion" not in reply.body.decode()


async def test_section_9_2_too_large_and_invalid_json() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        large = b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"x":"' + b"x" * 11_000_000 + b'"}}'
        assert (await ask(app, "POST", "/", headers=[("content-type", "application/json")], body=large)).status == 413
        assert (await ask(app, "POST", "/", headers=[("content-type", "text/plain")], body=b"{}")).status == 415


async def test_section_9_2_too_large_in_chunks() -> None:
    """The body has no Content-Length."""
    async with serving(registry_of(echo=Echo())) as app:
        pieces = [b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"x":"', *[b"x" * 1_000_000] * 11]
        headers = [("content-type", "application/json"), ("transfer-encoding", "chunked")]
        assert (await ask(app, "POST", "/", headers=headers, body=b"".join(pieces))).status == 413


@pytest.mark.parametrize("given", ["[1, 2]", "3", '"x"', "null", "true"])
async def test_section_9_2_json_that_is_not_an_object(given: str) -> None:
    """A text part with such JSON is text for a module that takes text; a module that takes an object refuses it."""
    async with serving(registry_of(echo=Echo(), total=Total())) as app:
        assert (await error_of(app, given, skill="total"))["code"] == -32602
        assert state(await task_of(app, given, skill="echo")) == "completed"


async def test_section_9_3_internal_details_are_hidden() -> None:
    why = 'Traceback\n  File "/srv/app/m.py", line 3\nKeyError: api_key=s3cr3t in /etc/agent/conf.d/keys.yaml'
    given = {
        "foreign": Giving(KeyError(why)),
        "own": Giving(errors.ModuleError(code="OWN_CODE", message=why, details={"file": "/srv/x/y"})),
        "input": Giving(errors.InvalidInputError(f"bad value {why}")),
    }
    async with serving(registry_of(**given)) as app:
        for skill in given:
            task = await answer(app, "message/send", send_params(data({}), skill=skill))
            assert task["status"]["state"] == "failed"
            for secret in ("/srv", "/etc", "s3cr3t", "line 3", "Traceback"):
                assert secret not in str(task), (skill, secret)


class Declined(Giving):
    """Declares the messages of one of its errors as public."""

    metadata: ClassVar = {"public_errors": ["CARD_DECLINED"]}


DECLINED = errors.ModuleError(
    code="CARD_DECLINED",
    message="The card ending in 4242 was declined",
    ai_guidance="Ask the user for another card.",
    suggestion="Use another card",
    user_fixable=True,
    retryable=False,
)


@pytest.mark.parametrize(
    ("module", "public", "words"),
    [
        (Declined(DECLINED), True, "The card ending in 4242 was declined"),
        (Declined(DECLINED), False, "Internal error"),
        (Giving(DECLINED), True, "Internal error"),
        (Declined(errors.ModuleError(code="OTHER", message="in /srv/app/x")), True, "Internal error"),
    ],
)
async def test_an_error_of_a_module_keeps_its_code_and_its_hints(module: Any, public: bool, words: str) -> None:
    """The response shows its message if the module declares it public and the agent allows that."""
    async with serving(registry_of(pay=module), public_errors=public) as app:
        found = status_data(task := await task_of(app, {}))
        assert (state(task), found["message"]) == ("failed", words)
        if module.outcome is DECLINED:
            assert found["data"] == {
                "type": "ModuleError",
                "code": "CARD_DECLINED",
                "ai_guidance": "Ask the user for another card.",
                "suggestion": "Use another card",
                "user_fixable": True,
                "retryable": False,
            }


async def test_a_public_error_is_returned_completely() -> None:
    why = "The CSV is malformed at line 3: 2026/01/02 is no date; see https://docs.example/srv/formats and /rows/3/date"
    async with serving(registry_of(read=Giving(errors.InvalidInputError(why)))) as app:
        assert status_data(await task_of(app, {}))["message"] == f"Invalid input: {why}"


class Number(BaseModel):
    n: int


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Wrong(Giving):
    """Has an output that does not match its schema, calls such a module, or calls a module with a wrong input."""

    def __init__(self, schema: Any, inner: str | None = None) -> None:
        super().__init__({"n": "hunter2"})
        self.output_schema = schema
        self.inner = inner

    async def execute(self, inputs: dict[str, Any], context: Any) -> Any:
        if self.inner is not None:
            return await context.executor.call_async(self.inner, {"n": "hunter2"}, context)
        return self.outcome


class Picky(Giving):
    """Takes a number."""

    input_schema: Any = NUMBER


@pytest.mark.parametrize("schema", [Number, NUMBER], ids=["pydantic", "dict"])
@pytest.mark.parametrize("inner", [None, "other", "picky"])
async def test_an_invalid_value_of_the_agent_is_an_internal_error(schema: Any, inner: str | None) -> None:
    modules = {"wrong": Wrong(None if inner else schema, inner), "other": Wrong(schema), "picky": Picky()}
    async with serving(registry_of(**modules)) as app:
        task = await task_of(app, {}, skill="wrong")
        assert (state(task), status_data(task)["code"], status_text(task)) == ("failed", -32603, "Internal error")
        assert "hunter2" not in str(task)


async def test_section_9_5_errors_have_one_shape() -> None:
    async with serving(registry_of(echo=Echo(), total=Total())) as app:
        for params in (
            send_params(text("x")),
            send_params(text("x"), skill="no"),
            send_params(data({}), skill="total"),
            {},
        ):
            error = (await call(app, "message/send", params)).json["error"]
            assert set(error) == {"code", "message", "data"}
            assert isinstance(error["data"]["type"], str)


async def test_section_9_4_modules_are_not_retried() -> None:
    class Counting(Giving):
        calls = 0

        async def execute(self, inputs: dict[str, Any], context: Any) -> Any:
            type(self).calls += 1
            raise RuntimeError

    async with serving(registry_of(bad=Counting())) as app:
        assert state(await task_of(app, {})) == "failed"
        assert Counting.calls == 1
    async with bad_agent() as agent:
        agent.answers[CARD_PATH] = agent.card()
        agent.calls = [http(b"down", status=500)]
        async with A2AClient(agent.url) as client:
            with pytest.raises(A2AServerError):
                await client.send_message("hello")
        assert len(agent.posts) == 1


async def test_section_9_4_a_repeated_send_returns_the_same_task() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        first, second = [(await send(app, "hi", messageId="m")).json["result"]["task"] for _ in range(2)]
        assert first["id"] == second["id"]
        assert "error" in (await send(app, "other", messageId="m")).json


@pytest.mark.parametrize("headers", [[], [("a2a-version", "0.3")]], ids=["no header", "header"])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"jsonrpc":"1.0","id":1,"method":"tasks/get","params":{"id":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":5}',
        b'{"jsonrpc":"2.0","id":1,"method":"tasks/nothing","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}',
    ],
)
@pytest.mark.parametrize("auth", [None, authenticator()], ids=["open", "authenticated"])
async def test_callers_of_0_3_get_errors_of_0_3(headers: Any, body: bytes, auth: Any) -> None:
    """This holds even before the method is known: a request without A2A-Version is one of 0.3."""
    json = ("content-type", "application/json")
    async with serving(registry_of(echo=Echo()), auth=auth) as app:
        error = (await ask(app, "POST", "/", headers=[*headers, json], body=body)).json["error"]
        assert isinstance(error["data"]["type"], str)
        newer = (await ask(app, "POST", "/", headers=[("a2a-version", "1.0"), json], body=body)).json["error"]
        assert isinstance(newer["data"], list if b"message/send" not in body or auth else dict)
