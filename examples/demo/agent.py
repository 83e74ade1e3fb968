"""The demo agent: routes each message to the worker of its skill, and lists all skills in one card."""

from __future__ import annotations

from examples.demo.guide import Guide
from examples.demo.guide import card as guide_card
from examples.demo.modules import modules
from examples.demo.planner import PLAN, planner
from examples.demo.steered import steered
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.protocol.requests import SendMessageRequest
from keelbolt.server.admission import Admitted
from keelbolt.server.caller import Caller
from keelbolt.tasks import Dependency, TaskContext, Worker
from keelbolt.tasks.manager import TaskManager

SKILL = "skillId"


class Demo(Worker, Dependency):
    """Runs each task with the worker of its skill, and handles steering, such as a kill of the process."""

    def __init__(self, storage: str, *, pace: float = 1.0) -> None:
        self.guide = Guide(pace=pace)
        self.modules, self._builder = modules()
        self.planner = planner(storage, pace=pace)

    async def startup(self) -> None:
        await self.planner.startup()

    async def shutdown(self) -> None:
        await self.planner.shutdown()

    async def handle(self, ctx: TaskContext) -> None:
        skill = str(ctx.task_metadata.get(SKILL) or "")
        async with steered(ctx) as steering:
            if self.modules.catalog.get(skill) is not None:
                await self.modules.handle(ctx)
            elif skill == PLAN.id:
                await self.planner.handle(ctx)
            else:
                await self.guide.choose(ctx, steering)

    async def admit(self, request: SendMessageRequest, caller: Caller, tasks: TaskManager) -> Admitted:
        """Store the skill in the task's metadata, for filters; modules also check their input."""
        message = request.message
        chosen = str({**(request.metadata or {}), **(message.metadata or {})}.get(SKILL) or "")
        if not chosen and message.task_id is None and message.text.lower().startswith("plan"):
            chosen = PLAN.id
        if self.modules.catalog.get(chosen) is not None:
            return await self.modules.admission.admit(request, caller, tasks)
        return Admitted(metadata={SKILL: chosen} if chosen else {})

    def card(self) -> AgentCardConfig:
        found = self._builder.build()
        plain = {skill.id: skill for skill in guide_card.skills}
        first = [plain.pop(name) for name in ("work", "deploy", "write")]
        return guide_card.model_copy(
            update={
                "name": "Keelbolt demo",
                "description": "Every face of Keelbolt in one agent: plain skills, apcore modules and a turn runner.",
                "skills": [*first, PLAN, *found.skills, *plain.values()],
                "extensions": [*guide_card.extensions, *found.extensions],
                "input_modes": ["text/plain", "application/json"],
            }
        )
