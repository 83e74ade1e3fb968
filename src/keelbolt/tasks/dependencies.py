"""Dependencies of workers: started in order before the first task, shut down in reverse order after the last."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from keelbolt.errors import KeelboltError

logger = logging.getLogger("keelbolt.tasks")

T = TypeVar("T")


class Dependency:
    """A resource that is started and shut down: a pool, a client, a model. Other objects can be dependencies, too."""

    async def startup(self) -> None:
        """Called before the first task runs."""

    async def shutdown(self) -> None:
        """Called after the last task ran."""


class Dependencies:
    """``ctx.deps[Database]`` or ``ctx.deps["model"]``: by type or by name."""

    def __init__(self, given: Mapping[Any, Any] | None = None) -> None:
        self._given = dict(given or {})
        self._started: list[Dependency] = []

    @overload
    def __getitem__(self, key: type[T]) -> T: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        try:
            return self._given[key]
        except KeyError:
            name = key.__name__ if isinstance(key, type) else repr(key)
            raise KeyError(f"no dependency {name}; pass it to the server: dependencies={{{name}: …}}") from None

    def get(self, key: Any, default: Any = None) -> Any:
        return self._given.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._given

    async def start(self) -> None:
        """Start each dependency. If one fails, shut down the started ones and raise an error that names it."""
        for key, value in self._given.items():
            if isinstance(value, Dependency):
                try:
                    await value.startup()
                except Exception as error:
                    await self.stop()
                    raise KeelboltError(f"the dependency {key!r} failed to start: {error}") from error
                self._started.append(value)

    async def stop(self) -> None:
        """Shut down the started dependencies in reverse order. A failure is logged; the others are still shut down."""
        while self._started:
            value = self._started.pop()
            try:
                await value.shutdown()
            except Exception:
                logger.exception("the dependency %s failed to shut down", type(value).__name__)
