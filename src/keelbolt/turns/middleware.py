"""`hydrate`: middleware that fetches stored data into the turn's sets before the executor runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keelbolt.errors import InvalidValue
from keelbolt.names import suggestion
from keelbolt.turns.codec.kinds import PLURALS
from keelbolt.turns.context import TurnContext
from keelbolt.turns.pipeline import Middleware, Next
from keelbolt.turns.primitives import Tokenizable
from keelbolt.turns.windows import EVERYTHING, Limit, asking, check_limit

_NAMES = (*PLURALS.values(), "tools")


def hydrate(*names: str, **limits: Limit) -> Middleware:
    """Return middleware for ``turn_input_pipeline`` that fetches these and adds them to the sets of the turn.

        turn_input_pipeline=[hydrate("tool_calls", messages=Window(last=200), memories=TopK(20))]

    A name is one of messages, memories, thoughts, tool_calls, retrievables, standing_instructions and tools; with a
    Window (or, for memories, a TopK) no more than that is fetched. An adapter without support for limits fetches
    everything, and the excess is dropped here. Standing instructions that the turn already has are not added twice.
    """
    wanted = _wanted(names, limits)

    async def hydrating(ctx: TurnContext, next: Callable[[], Next]) -> None:  # noqa: A002 - its name in all middleware
        for name, limit in wanted.items():
            await _add(ctx, name, limit)
        await next()

    return hydrating


def _wanted(names: Sequence[str], limits: dict[str, Limit]) -> dict[str, Limit | None]:
    wanted: dict[str, Limit | None] = dict.fromkeys(names)
    for name, limit in limits.items():
        wanted[name] = check_limit(name, limit)
    if not wanted:
        raise InvalidValue(f"hydrate needs at least one name: {', '.join(_NAMES)}")
    for name in wanted:
        if name not in _NAMES:
            raise InvalidValue(f"hydrate: unknown name {name!r}{suggestion(name, _NAMES)}")
    if wanted.get("tools") is not None:
        raise InvalidValue("tools are fetched without a limit")
    return wanted


async def _add(ctx: TurnContext, name: str, limit: Limit | None) -> None:
    verb = "refresh" if name == "standing_instructions" else "fetch"
    with asking(name, limit):
        found = await getattr(ctx, f"{verb}_{name}")()
    values = (limit or EVERYTHING).of(found)
    if name == "tools":
        for tool in values:
            ctx.tools.register(tool, overwrite=True)
    elif name == "standing_instructions":
        known = {str(value) for value in ctx.standing_instructions}
        for value in values:
            if str(value) not in known:
                known.add(str(value))
                ctx.standing_instructions.add(Tokenizable.of(value))
    else:
        kept = getattr(ctx, f"turn_{name}")
        for value in values:
            kept.add(value)
