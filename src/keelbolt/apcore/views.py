"""What an executor sees of the modules that are served: themselves, through a view that keeps them in their bounds.

- The JSON schemas of a module's pydantic models are made once. apcore asks for them three times in each call, and
  pydantic makes them anew each time: four fifths of what a call of apcore costs.
- A module that raises SystemExit, KeyboardInterrupt or GeneratorExit fails its task. The first two would end the agent;
  after the third the task would never end.
- A coroutine that goes on after its turn is over is cancelled, once it had time to heed its cancel token.
- A module whose input or output schema is a string takes or returns text. apcore's steps take objects alone, so they
  see {"text": …}.
- `def execute` runs in a thread of its own, at once. In the loop's pool, which has a few threads, it would wait for
  others, be called after its task was cancelled or timed out, and hold up the end of the process.

Modules, models and the registry stay as they are: the view stands between them and the step of the pipeline that looks
modules up, and goes when the last server of the executor closes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from keelbolt.apcore.library import BuiltinModuleLookup, ModuleError, StreamingModule
from keelbolt.apcore.running import running_var
from keelbolt.apcore.schemas import TEXT, is_text
from keelbolt.tasks.threads import in_thread

ENDING = (SystemExit, KeyboardInterrupt, GeneratorExit)
LOOKS_AT = "_registry"  # apcore has no public name for where its step looks modules up


class ModelView:
    """A pydantic class that makes its JSON schema once, or anew after the class was built anew."""

    _known: tuple[Any, str] | None = None

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def model_json_schema(self, *given: Any, **named: Any) -> dict[str, Any]:
        """As the class's own; each caller gets a dictionary that it may change."""
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
    """The schema of a text, for apcore, which takes objects alone."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def model_json_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {TEXT: self.model.model_json_schema()}, "required": [TEXT]}

    def model_validate(self, data: Any, *, strict: bool | None = None) -> Any:
        return self.model.model_validate(data.get(TEXT), strict=strict)


class ModuleView:
    """A module, kept in its bounds."""

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
    """A module that streams; apcore knows it by this method."""

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
                yield chunk  # a GeneratorExit that is raised here is not the module's: the stream was left
        finally:
            if hasattr(chunks, "aclose"):  # a stream that is left ends now, and not when it is collected
                await chunks.aclose()


class RegistryView:
    """A registry whose modules are seen through views. ``servers`` counts for whom."""

    def __init__(self, registry: Any) -> None:
        self.registry = registry
        self.servers = 0
        self._views: dict[str, ModuleView] = {}
        self._kept: dict[str, tuple[Any, Any]] = {}  # modules that are being replaced, and their annotations

    def __getattr__(self, name: str) -> Any:
        return getattr(self.registry, name)

    @contextmanager
    def keeping(self, module_id: str) -> Iterator[None]:
        """Show the module as it is now, with its annotations, while the registry replaces it."""
        declared = getattr(self.registry, "get_declared_annotations", lambda _: None)
        self._kept[module_id] = (self.registry.get(module_id), declared(module_id))
        try:
            yield
        finally:
            del self._kept[module_id]

    def get_declared_annotations(self, module_id: str) -> Any:
        kept = self._kept.get(module_id)
        return self.registry.get_declared_annotations(module_id) if kept is None else kept[1]

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
    """Let the executor look modules up through views; returns the view of its registry, and how to undo it.

    An executor that is not apcore's own is left alone; it has no view.
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
    """Whether a model makes its JSON schema the usual way; one with a way of its own may have reasons for it."""
    way = getattr(getattr(model, "model_json_schema", None), "__func__", None)
    usual = BaseModel.model_json_schema.__func__  # type: ignore[attr-defined]  # it is a class method
    return isinstance(model, type) and issubclass(model, BaseModel) and way is usual


def _json(schema: dict[str, Any]) -> str | None:
    """The text of a schema, from which it can be read again; None where something in it is nothing for JSON."""
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError):
        return None
    return text if json.loads(text) == schema else None
