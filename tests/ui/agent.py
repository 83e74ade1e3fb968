"""The agent whose explorer is tested: `python -m tests.ui.agent --port P --storage URL`."""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import signal
from pathlib import Path
from typing import Any

from keelbolt.auth import APIKeyAuthenticator, Principal
from keelbolt.data.retention import days
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, ExtensionConfig, SkillConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from keelbolt.tasks.settings import RetentionPolicy, TaskSettings
from keelbolt.turns import DispatchContext, durable_storage, turn_worker

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYPj/HwADAgH/5ncPTwAAAABJRU5ErkJggg=="
)
EVIL = "<img src=x onerror=\"window.hacked='{0}'\"><script>window.hacked='{0}'</script>"
SCHEMA = {
    "type": "object",
    "required": ["city", "guests"],
    "additionalProperties": False,
    "properties": {
        "city": {"type": "string", "minLength": 2, "description": "Where to eat"},
        "guests": {"type": "integer", "minimum": 1, "maximum": 12},
        "window": {"type": "boolean", "description": "By the window"},
        "diet": {"enum": ["none", "vegetarian", "vegan"]},
    },
}

BUTTONS = ExtensionConfig(
    uri="urn:keelbolt:a2a:steering:v1",
    params={
        "buttons": [
            {"label": EVIL.format("button"), "text": EVIL.format("text"), "kind": "inject", "tab": EVIL.format("tab")},
            {"label": 1, "kind": None},
            None,
        ]
    },
)


def card(*, evil: bool) -> AgentCardConfig:
    def text(plain: str, place: str) -> str:
        return EVIL.format(place) if evil else plain

    return AgentCardConfig(
        name=text("Harbour", "name"),
        description=text("Counts, books, deploys; for the tests of its page.", "description"),
        capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
        skills=[
            SkillConfig(
                id=text("count", "id"),
                name=text("Count", "skill"),
                description=text("Counts aloud.", "about"),
                tags=[text("streaming", "tag")],
                examples=[text("count to 3", "example")],
            ),
            SkillConfig(
                id="book",
                name="Book a table",
                description="By a form.",
                tags=["forms"],
                examples=['{"city": "Oulu", "guests": 2}'],
            ),
        ],
        extensions=[
            ExtensionConfig(uri="urn:example:schemas", params={"inputSchemas": {"book": SCHEMA}}),
            *([BUTTONS] if evil else []),
        ],
        input_modes=["*/*"],
    )


class Actor:
    """One method for each first word of a message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def handle(self, ctx: TaskContext) -> None:
        word, _, rest = (ctx.user_text or ("book" if ctx.data_parts else "say")).partition(" ")
        await getattr(self, word if hasattr(self, word) and not word.startswith("_") else "say")(ctx, rest)

    async def say(self, ctx: TaskContext, rest: str) -> None:
        names = ", ".join(f"{file.filename} ({len(file.content or b'')} bytes)" for file in ctx.files)
        await ctx.complete(f"You said: {ctx.user_text}{names}")

    async def count(self, ctx: TaskContext, rest: str) -> None:
        last = int(rest.rsplit(maxsplit=1)[-1])
        for number in range(1, last + 1):
            final = number == last
            await ctx.emit_text_artifact(f"{number} ", artifact_id="numbers", append=True, last_chunk=final)
            if last < 100:
                await asyncio.sleep(0.05)
        await ctx.complete()

    async def book(self, ctx: TaskContext, rest: str) -> None:
        await ctx.complete_json({"booked": ctx.data_parts[0], "password": "hunter2", "apiToken": "t0ps3cret"})

    async def picture(self, ctx: TaskContext, rest: str) -> None:
        await ctx.emit_artifact(artifact_id="pixel", file_bytes=PIXEL, media_type="image/png", filename="pixel.png")
        await ctx.emit_artifact(artifact_id="notes", file_bytes=b"plain", media_type="text/plain", filename="notes.txt")
        await ctx.complete()

    async def markdown(self, ctx: TaskContext, rest: str) -> None:
        await ctx.emit_text_artifact(rest, artifact_id="report")
        await ctx.emit_artifact(artifact_id="plain", text="**as it is**", media_type="text/plain")
        await ctx.emit_text_artifact('{"a": {"b": [1, 2]}}', artifact_id="parsed")
        await ctx.complete()

    async def deploy(self, ctx: TaskContext, rest: str) -> None:
        await ctx.step("build", asyncio.sleep, 0.02)
        change = {
            "action": "replace",
            "target": "production",
            "summary": "Version 1 gives way to version 2",
            "before": 1,
        }
        approval = {"target": "production", "preview": {"changes": [change], "warnings": ["It is Friday"]}}
        await ctx.request_input("Approve the deployment to production?", data={"approval": approval})

    async def approve(self, ctx: TaskContext, rest: str) -> None:
        await ctx.step("release", asyncio.sleep, 0.02)
        await ctx.complete("Deployed.")

    async def reject(self, ctx: TaskContext, rest: str) -> None:
        await ctx.reject("Not deployed.")

    async def fail(self, ctx: TaskContext, rest: str) -> None:
        await ctx.fail("The engine is out of oil.")

    async def crash(self, ctx: TaskContext, rest: str) -> None:
        raise RuntimeError("the oven exploded, token=s3cr3t-s3cr3t")

    async def listen(self, ctx: TaskContext, rest: str) -> None:
        """Reports each steering event until it is canceled."""
        async for event in ctx.inbox:
            await ctx.send_status(f"received {event.kind}: {event.reason} {event.payload.get('text', '')}".strip())
            if event.kind in ("redirect", "cancel"):
                break
        if not ctx.is_cancelled:
            await ctx.complete("redirected")

    async def die(self, ctx: TaskContext, rest: str) -> None:
        """Kills its process in the first attempt; with `doubt`, during a step."""
        mark = self.folder / f"died-{ctx.task_id}"
        if mark.exists() and rest != "doubt":
            await ctx.complete("Alive again.")
            return

        async def fatal() -> str:
            if not mark.exists():
                mark.touch()
                await asyncio.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)
            return "paid"

        await ctx.emit_text_artifact("begun ", append=True)
        if rest == "doubt":
            await ctx.step("pay", fatal)
            await ctx.complete("Paid once.")
        else:
            await fatal()

    async def evil(self, ctx: TaskContext, rest: str) -> None:
        bad = EVIL.format("worker")
        await ctx.send_status(bad)
        await ctx.emit_artifact(
            artifact_id=bad, text=bad, name=bad, description=bad, metadata={bad: bad}, append=False, last_chunk=True
        )
        await ctx.emit_artifact(artifact_id="json", data={bad: [bad, {bad: bad}]})
        await ctx.emit_artifact(
            artifact_id="svg", file_bytes=b"<svg onload='window.hacked=1'/>", media_type="image/svg+xml", filename=bad
        )
        await ctx.emit_artifact(artifact_id="link", file_url="javascript:window.hacked='url'", filename=bad)
        await ctx.step(bad, asyncio.sleep, 0)
        await ctx.request_input(bad, data={"answers": [bad]})


def people(key: str) -> dict[str, Principal | str]:
    """Return the key of Alice; the operator's key has another ending."""
    return {key: "alice", f"{key}-operator": Principal(owner="olga", roles=frozenset({"operator:all"}))}


def server(
    storage: str, folder: Path, *, evil: bool = False, key: str = "", attempts: int = 5, lease: float = 2
) -> A2AServer:
    options: dict[str, Any] = {"auth": APIKeyAuthenticator.of(people(key))} if key else {}
    return A2AServer(
        worker=Actor(folder).handle,
        agent_card=card(evil=evil),
        storage=storage,
        settings=ServerSettings.of({}, operators="loopback", webhook_loopback=True, heartbeat_stream_seconds=2),
        task_settings=TaskSettings.of({}, lease_seconds=lease, drain_seconds=0.2, max_attempts=attempts),
        retention=RetentionPolicy(completed=days(30), log=days(1)),
        **options,
    )


async def asks(ctx: DispatchContext, _helpers: Any) -> None:
    """A turn that waits at two gates."""
    much = await ctx.wait_for(reason="How much?", schema={"type": "integer", "maximum": 100}, payload={"order": 7})
    where = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string", "minLength": 2}}}
    place = await ctx.wait_for(reason="Where to?", schema=where)
    ctx.nack(f"{much} to {place['city']}")


def turning(storage: str) -> A2AServer:
    """An agent with stored turns that wait at gates."""
    kept = durable_storage(storage)
    worker = turn_worker(kept.runner(executor_callback=asks), kept, system_prompt="Ask.")
    settings = ServerSettings.of({}, operators="loopback")
    return A2AServer(worker=worker, agent_card=card(evil=False), storage=storage, settings=settings)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--storage", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--evil", action="store_true")
    parser.add_argument("--key", default="")
    parser.add_argument("--attempts", type=int, default=5)
    parser.add_argument("--lease", type=float, default=2)
    parser.add_argument("--turns", action="store_true")
    given = parser.parse_args()
    if given.turns:
        turning(given.storage).run(port=given.port)
        return
    options = {"evil": given.evil, "key": given.key, "attempts": given.attempts, "lease": given.lease}
    server(given.storage, given.folder, **options).run(port=given.port)


if __name__ == "__main__":
    main()
