"""The tools of a turn, by name and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from keelbolt.errors import InvalidInitialToolValue, ToolAlreadyRegistered
from keelbolt.turns.tools import COLLISIONS, Collision, Tool


class Acknowledged(Protocol):
    def on_ack(self, handler: Callable[[], None], /) -> Callable[[], None]: ...


class ToolRegistry:
    """Tools by name. A hidden one can be called but is not shown to the model."""

    __slots__ = ("_hidden", "_tools")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._hidden: set[str] = set()
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool, *, overwrite: bool = False) -> None:
        """Add the tool; with ``overwrite`` it replaces one of the same name."""
        if not isinstance(tool, Tool):
            raise InvalidInitialToolValue(f"register takes a Tool, not {type(tool).__name__}")
        if tool.name in self._tools and not overwrite:
            raise ToolAlreadyRegistered(
                f"a tool named {tool.name!r} is already registered; pass overwrite=True or use another name"
            )
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> bool:
        """Remove the tool; return whether it was registered."""
        self._hidden.discard(name)
        return self._tools.pop(name, None) is not None

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def has(self, name: str) -> bool:
        return name in self._tools

    def all(self) -> list[Tool]:
        return list(self._tools.values())

    def visible(self) -> list[Tool]:
        """Return the tools that the model is shown."""
        return [tool for tool in self if tool.name not in self._hidden]

    def hidden(self) -> list[Tool]:
        return [tool for tool in self if tool.name in self._hidden]

    def hide(self, *names: str) -> None:
        """Hide these tools; this also applies to names registered later."""
        self._hidden.update(names)

    def unhide(self, *names: str) -> None:
        self._hidden.difference_update(names)

    def set_hidden(self, names: Iterable[str]) -> None:
        """Hide exactly these tools."""
        self._hidden = set(names)

    def clear_hidden(self) -> None:
        self._hidden.clear()

    def prune_ephemeral(self) -> list[Tool]:
        """Remove and return the ephemeral tools."""
        pruned = [tool for tool in self if tool.ephemeral]
        for tool in pruned:
            self.unregister(tool.name)
        return pruned

    def bind_context(self, ctx: Acknowledged) -> Callable[[], None]:
        """Remove the ephemeral tools when this dispatch is acknowledged. Return a function that undoes the binding."""

        def prune() -> None:
            self.prune_ephemeral()

        return ctx.on_ack(prune)

    def copy(self) -> ToolRegistry:
        copied = ToolRegistry(self)
        copied._hidden = set(self._hidden)
        return copied

    @staticmethod
    def merge(registries: Iterable[ToolRegistry], *, on_collision: Collision = "throw") -> ToolRegistry:
        """Return one registry of all. For equal names the later tool's own policy decides, or else ``on_collision``."""
        if on_collision not in COLLISIONS:
            raise InvalidInitialToolValue(f"on_collision must be throw, replace or keep, not {on_collision!r}")
        merged = ToolRegistry()
        for registry in registries:
            hidden = registry.hidden()
            for tool in registry:
                taken = tool.name in merged._tools
                policy = tool.on_collision or on_collision
                if taken and policy == "keep":
                    continue
                merged.register(tool, overwrite=policy == "replace")
                if taken:
                    merged._hidden.discard(tool.name)
                if tool in hidden:
                    merged._hidden.add(tool.name)
        return merged

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"ToolRegistry({list(self._tools)!r})"
