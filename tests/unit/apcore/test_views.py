"""Module views behave like the modules that they wrap."""

from __future__ import annotations

import inspect
from decimal import Decimal
from typing import Any, ClassVar, Literal

import pytest
from apcore import Executor, Registry
from apcore.errors import ModuleError
from apcore.streaming import StreamingModule
from pydantic import BaseModel, ConfigDict, Field

from keelbolt.apcore.views import ModelView, ModuleView, RegistryView, StreamingView, look_through_views
from tests.integration.apcore.modules import Count, Echo, Giving, Total, registry_of


class Inner(BaseModel):
    kind: Literal["a", "b"] = "a"


class Outer(BaseModel):
    inner: Inner
    others: list[Inner] = Field(default_factory=list, alias="rest")
    number: float = 1e300


class Own(BaseModel):
    calls: ClassVar[int] = 0

    @classmethod
    def model_json_schema(cls, *_given: Any, **_named: Any) -> dict[str, Any]:
        cls.calls += 1
        return {"type": "object"}


class Decimals(BaseModel):
    model_config = ConfigDict(json_schema_extra={"x": Decimal("1.5")})  # type: ignore[dict-item]


class Nameless(BaseModel):
    model_config = ConfigDict(json_schema_extra={"x": float("nan")})


class Pairs(BaseModel):
    model_config = ConfigDict(json_schema_extra={"x": (1, 2)})  # type: ignore[dict-item]


class Module:
    def __init__(self, given: Any, gives: Any = None) -> None:
        self.input_schema, self.output_schema = given, gives


# ------------------------------------------------------------------------------------------------------------ schemas


def test_the_schema_is_made_once_and_is_the_same() -> None:
    view = ModuleView(Module(Outer, Inner))
    for name, model in (("input_schema", Outer), ("output_schema", Inner)):
        seen = getattr(view, name)
        assert seen.model_json_schema() == seen.model_json_schema() == model.model_json_schema()
        assert list(seen.model_json_schema()) == list(model.model_json_schema())
        made = seen._known
        seen.model_json_schema()
        assert seen._known is made
        assert getattr(view, name) is seen
        assert "model_json_schema" not in vars(model)  # the user's class is unchanged


def test_callers_get_a_copy_of_the_schema() -> None:
    view = ModelView(Outer)
    view.model_json_schema()["properties"].clear()
    assert view.model_json_schema() == Outer.model_json_schema()


def test_other_schema_arguments_are_passed_to_the_model() -> None:
    view = ModelView(Outer)
    assert view.model_json_schema(by_alias=False) == Outer.model_json_schema(by_alias=False)
    assert view.model_json_schema(mode="serialization") == Outer.model_json_schema(mode="serialization")
    assert view.model_validate({"inner": {}}) == Outer(inner=Inner())


def test_a_rebuilt_model_gets_a_new_schema() -> None:
    class Late(BaseModel):
        word: str

    view = ModelView(Late)
    first = view.model_json_schema()
    Late.model_fields["word"].description = "new"
    Late.model_rebuild(force=True)
    assert view.model_json_schema() == Late.model_json_schema()
    assert view.model_json_schema() != first


@pytest.mark.parametrize("model", [Decimals, Nameless, Pairs])
def test_schemas_that_are_not_json_are_not_cached(model: type[BaseModel]) -> None:
    view = ModelView(model)
    assert str(view.model_json_schema()) == str(model.model_json_schema())
    assert view._known is None


@pytest.mark.parametrize("schema", [None, {"type": "object"}, "text", int, Own, Own()])
def test_models_with_custom_schemas_are_not_wrapped(schema: Any) -> None:
    assert ModuleView(Module(schema)).input_schema is schema
    assert getattr(ModuleView(object()), "input_schema", None) is None


def test_each_model_has_its_own_view() -> None:
    module = Module(Outer)
    view = ModuleView(module)
    before = view.input_schema
    module.input_schema = Inner
    assert view.input_schema is not before
    assert view.input_schema.model_json_schema() == Inner.model_json_schema()


# ------------------------------------------------------------------------------------------------------------ modules


def test_a_registry_returns_views_and_drops_them() -> None:
    registry = registry_of(echo=Echo(), count=Count())
    view = RegistryView(registry)
    seen = view.get("echo")
    assert (seen.description, seen.module) == ("Says it again", registry.get("echo"))
    assert view.get("echo") is seen
    assert isinstance(view.get("count"), StreamingView)
    assert isinstance(view.get("count"), StreamingModule)
    assert not isinstance(seen, StreamingModule)
    assert view.list() == ["count", "echo"]
    registry.unregister("echo")
    assert view.get("echo") is None
    registry.register("echo", Total())
    assert isinstance(view.get("echo").module, Total)
    assert inspect.iscoroutinefunction(view.get("echo").execute)  # in a thread


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_a_module_does_not_end_the_process(error: BaseException) -> None:
    with pytest.raises(ModuleError, match="tried to end the process"):
        await ModuleView(Giving(error)).execute({}, None)


# ---------------------------------------------------------------------------------------------------------- executors


async def test_the_last_server_of_an_executor_restores_it() -> None:
    registry = registry_of(echo=Echo())
    executor = Executor(registry)
    [step] = [step for step in executor.current_strategy.steps if step.name == "module_lookup"]
    (_, first), (_, second) = look_through_views(executor), look_through_views(executor)
    assert await executor.call_async("echo", {"text": "hi"}) == {"text": "hi"}
    view = step._registry
    assert isinstance(view, RegistryView)
    assert not isinstance(view.registry, RegistryView)
    first()
    assert step._registry is view
    second()
    assert step._registry is registry
    assert await executor.call_async("echo", {"text": "hi"}) == {"text": "hi"}


def test_other_executors_are_not_changed() -> None:
    assert look_through_views(object())[0] is None
    look_through_views(object())[1]()
    executor = Executor(Registry(), strategy="minimal")
    look_through_views(executor)[1]()
