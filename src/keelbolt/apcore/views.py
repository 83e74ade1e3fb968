"""Views through which an executor sees the served modules.

- The JSON schemas of a module's pydantic models are created once. apcore requests them three times in each call, and
  pydantic creates them again each time: four fifths of the cost of an apcore call.
- A module that raises SystemExit, KeyboardInterrupt or GeneratorExit fails its task. The first two would end the
  agent; after the third the task would never end.
- A coroutine that continues after its turn is cancelled, once it had time to react to its cancel token.
- A module whose input or output schema is a string takes or returns text. apcore's steps only take objects, so they
  see {"text": …}.
- `def execute` runs at once in its own thread. In the loop's pool, which has a few threads, it would wait for other
  calls, start after its task was cancelled or timed out, and delay the end of the process.

Modules, models and the registry stay unchanged: the view stands between them and the pipeline step that looks modules
up, and is removed when the last server of the executor closes.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic import BaseModel

from keelbolt.apcore.library import BuiltinModuleLookup, ModuleError, StreamingModule
from keelbolt.apcore.schemas import TEXT, is_text
from keelbolt.tasks.threads import in_thread

ENDING = (SystemExit, KeyboardInterrupt, GeneratorExit)
LOOKS_AT = "_registry"  # the lookup step's registry; apcore has no public name for it


class ModelView:
    """A pydantic class with a cached JSON schema; the cache is refreshed after the class was rebuilt."""

    _known: tuple[Any, str] | None = None

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def model_json_schema(self, *given: Any, **named: Any) -> dict[str, Any]:
        """Return the JSON schema of the class; each caller gets a dictionary that it may change."""
        if given or named:
            return self.model.model_json_schema(*given, **named)
        if self._known is None or self._known[0] is not self.model.__pydantic_core_schema__:
            made = self.model.model_json_schema()
            text = _json(made)
            if text is None:
                return made
            self._known = (self.model.__pydantic_core_schema__, text)
        known: dict[str, Any] = json.loads(self._known[1])
        return known


class TextSchema:
    """Wraps the schema of a string as an object, since apcore only takes objects."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def model_json_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {TEXT: self.model.model_json_schema()}, "required": [TEXT]}

    def model_validate(self, data: Any, *, strict: bool | None = None) -> Any:
        return self.model.model_validate(data.get(TEXT), strict=strict)


class ModuleView:
    """View of a module."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self._models: dict[str, Any] = {}
        self._texts = {name for name in ("input_schema", "output_schema") if _is_text(getattr(module, name, None))}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    @property
    def input_schema(self) -> Any:
        return self._model("input_schema")

    @property
    def output_schema(self) -> Any:
        return self._model("output_schema")

    @property
    def execute(self) -> Callable[[Any, Any], Awaitable[Any]]:
        execute = self.module.execute
        found = _contained(execute) if inspect.iscoroutinefunction(execute) else _threaded(execute)
        return _with_text(found, self._texts) if self._texts else found

    def _model(self, name: str) -> Any:
        model = getattr(self.module, name)
        if name in self._texts:
            return TextSchema(model)
        if not _makes_plain_schemas(model):
            return model
        view = self._models.get(name)
        if view is None or view.model is not model:
            view = self._models[name] = ModelView(model)
        return view


class StreamingView(ModuleView):
    """View of a module that streams; apcore recognises it by this method."""

    async def stream(self, inputs: Any, context: Any) -> AsyncIterator[Any]:
        chunks = self.module.stream(inputs[TEXT] if "input_schema" in self._texts else inputs, context)
        iterator = aiter(chunks)
        try:
            while True:
                try:
                    chunk = await anext(iterator)
                except StopAsyncIteration:
                    return
                except ENDING as error:
                    raise _ended(error) from error
                yield chunk  # a GeneratorExit raised here comes from the reader, not from the module
        finally:
            if hasattr(chunks, "aclose"):  # close the stream now instead of at garbage collection
                await chunks.aclose()


class RegistryView:
    """A registry that returns views of its modules. ``servers`` counts the servers that use it."""

    def __init__(self, registry: Any) -> None:
        self.registry = registry
        self.servers = 0
        self._views: dict[str, ModuleView] = {}
        self._kept: dict[str, tuple[Any, Any]] = {}  # modules that are being replaced, and their annotations

    def __getattr__(self, name: str) -> Any:
        return getattr(self.registry, name)

    @contextmanager
    def keeping(self, module_id: str) -> Iterator[None]:
        """Return the current module and its annotations while the registry replaces it."""
        self._kept[module_id] = (self.registry.get(module_id), self.get_declared_annotations(module_id))
        try:
            yield
        finally:
            del self._kept[module_id]

    def get_declared_annotations(self, module_id: str) -> Any:
        """Return the annotations that the registry has besides the module's own, or None."""
        if (kept := self._kept.get(module_id)) is not None:
            return kept[1]
        declared = getattr(self.registry, "get_declared_annotations", None)
        return declared(module_id) if callable(declared) else None

    def get(self, module_id: str, *given: Any, **named: Any) -> Any:
        kept = self._kept.get(module_id)
        module = self.registry.get(module_id, *given, **named) if kept is None else kept[0]
        if module is None:
            self._views.pop(module_id, None)
            return None
        view = self._views.get(module_id)
        if view is None or view.module is not module:
            kind = StreamingView if isinstance(module, StreamingModule) else ModuleView
            view = self._views[module_id] = kind(module)
        return view


def look_through_views(executor: Any) -> tuple[RegistryView | None, Callable[[], None]]:
    """Make the executor look modules up through views; return the registry's view, and a function that undoes this.

    An executor that is not apcore's own is left unchanged; it has no view.
    """
    steps = getattr(getattr(executor, "current_strategy", None), "steps", ())
    step = next((step for step in steps if isinstance(step, BuiltinModuleLookup)), None)
    registry = getattr(step, LOOKS_AT, None)
    if registry is None:
        return None, lambda: None
    view = registry if isinstance(registry, RegistryView) else RegistryView(registry)
    view.servers += 1
    setattr(step, LOOKS_AT, view)

    def undo() -> None:
        view.servers -= 1
        if view.servers == 0 and getattr(step, LOOKS_AT) is view:
            setattr(step, LOOKS_AT, view.registry)

    return view, undo


def _with_text(execute: Callable[[Any, Any], Awaitable[Any]], texts: set[str]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def with_text(inputs: Any, context: Any) -> Any:
        output = await execute(inputs[TEXT] if "input_schema" in texts else inputs, context)
        return {TEXT: output} if "output_schema" in texts else output

    return with_text


def _is_text(model: Any) -> bool:
    schema = getattr(model, "model_json_schema", None)
    return callable(schema) and is_text(schema())


def _contained(execute: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def contained(inputs: Any, context: Any) -> Any:
        if (running := running_var.get()) is not None:
            running.note()
        try:
            return await execute(inputs, context)
        except ENDING as error:
            raise _ended(error) from error

    return contained


def _threaded(execute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def threaded(inputs: Any, context: Any) -> Any:
        try:
            return await in_thread(execute, inputs, context)
        except ENDING as error:
            raise _ended(error) from error

    return threaded


def _ended(error: BaseException) -> ModuleError:
    return ModuleError("MODULE_EXECUTE_ERROR", f"the module tried to end the process: {type(error).__name__}")


def _makes_plain_schemas(model: Any) -> bool:
    """Return whether a model creates its JSON schema with pydantic's method; an overridden method is not cached."""
    way = getattr(getattr(model, "model_json_schema", None), "__func__", None)
    usual = BaseModel.model_json_schema.__func__  # type: ignore[attr-defined]  # it is a class method
    return isinstance(model, type) and issubclass(model, BaseModel) and way is usual


def _json(schema: dict[str, Any]) -> str | None:
    """Return a schema as JSON text; None if it does not survive the round trip."""
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError):
        return None
    return text if json.loads(text) == schema else None


# ------------------------------------------------------------------------------------------------- coroutines of a turn


HEED_SECONDS = 2.0


class Running:
    """The asyncio tasks that run for one turn.

    When a module's time is over, apcore stops waiting but lets it run, beside the process that takes its task over.
    Here its cancel token is set, it has two seconds to end, and then it is cancelled. (A thread can't be cancelled.)
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._own = asyncio.current_task()
        self._tasks: set[asyncio.Task[Any]] = set()

    def note(self) -> None:
        """Register the current asyncio task, unless it is the turn's own or runs in another thread's loop."""
        task = asyncio.current_task()
        if task is not None and task is not self._own and asyncio.get_running_loop() is self._loop:
            self._tasks.add(task)

    def stop(self) -> None:
        """Cancel the tasks that still run HEED_SECONDS after the turn ended."""
        for task in self._tasks:
            if not task.done():
                self._loop.call_later(HEED_SECONDS, task.cancel)


running_var: ContextVar[Running | None] = ContextVar("apcore_running", default=None)
