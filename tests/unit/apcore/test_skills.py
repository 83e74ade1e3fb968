"""Skills of the agent card, made from the descriptors of a real registry."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, ClassVar

import pytest
from apcore import ACL, Executor, ModuleAnnotations, ModuleDescriptor, Registry
from apcore.acl import ACLRule
from apcore.module import ModuleExample
from pydantic import BaseModel

from keelbolt.apcore.access import AccessPolicy, identity_of
from keelbolt.apcore.card import EXTENSION, AgentCardBuilder
from keelbolt.apcore.catalog import SkillCatalog, SkillMapper
from keelbolt.auth import ANONYMOUS, Principal
from keelbolt.protocol.card import build_card, card_v1
from keelbolt.server.caller import Caller


class Size(BaseModel):
    width: int
    height: int


class Words(BaseModel):
    text: str


class Resize:
    """Resizes."""

    input_schema: Any = Size
    output_schema: Any = Size
    description: Any = "Resizes an image"
    tags: ClassVar[list[str]] = ["image", "fast"]
    annotations = ModuleAnnotations(readonly=True, idempotent=True)
    examples: ClassVar[list[ModuleExample]] = [
        ModuleExample(f"Example {n}", {"width": n, "height": 1}, {"width": n, "height": 1}) for n in range(12)
    ]

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        return inputs


class Say(Resize):
    input_schema = Words
    examples: ClassVar[list[ModuleExample]] = []
    annotations = ModuleAnnotations()


class Nameless(Resize):
    description = ""


class Hidden(Resize):
    annotations = ModuleAnnotations(discoverable=False)


def registry_of(**modules: Any) -> Registry:
    registry = Registry()
    for name, module in modules.items():
        registry.register(name.replace("__", "."), module)
    return registry


def builder_of(registry: Registry, acl: ACL | None = None, **options: Any) -> AgentCardBuilder:
    access = AccessPolicy(Executor(registry, acl=acl))
    return AgentCardBuilder(SkillCatalog(registry), name="Images", version="2.0", access=access, **options)


def test_a_skill_has_all_data_of_its_module() -> None:
    registry = registry_of(image__resize_all=Resize())
    skill = SkillMapper().to_skill(registry.get_definition("image.resize_all"))
    assert skill is not None
    assert (skill.id, skill.name, skill.description) == ("image.resize_all", "Image Resize All", "Resizes an image")
    assert tuple(skill.tags) == ("image", "fast", "apcore:readonly", "apcore:idempotent")
    assert (skill.input_modes, skill.output_modes) == (("application/json",), ("application/json",))
    assert skill.examples is not None
    assert len(skill.examples) == 10
    assert skill.examples[1] == '{"width": 1, "height": 1}'
    published = (skill.extensions or {})["apcore"]
    assert published["annotations"] == {
        "readonly": True,
        "destructive": False,
        "idempotent": True,
        "requires_approval": False,
        "open_world": True,
    }
    assert published["outputSchema"]["properties"]["width"]["type"] == "integer"
    assert published["examples"][0]["title"] == "Example 0"


class Shown(Resize):
    metadata: ClassVar[dict[str, Any]] = {
        "display": {
            "alias": "Resizer",
            "description": "For all",
            "tags": ["shown"],
            "a2a": {"alias": "Resize it", "guidance": "One at a time", "description": ""},
        },
        "x-when-to-use": "When an image is too large",
        "x-common-mistakes": "Sizes in inches",
    }


def test_the_overlay_and_the_intent_of_a_module_are_shown() -> None:
    skill = SkillMapper().to_skill(registry_of(resize=Shown()).get_definition("resize"))
    assert skill is not None
    assert (skill.id, skill.name) == ("resize", "Resize it")
    assert skill.description == (
        "For all\n\nGuidance: One at a time\n\nWhen to use: When an image is too large\n\n"
        "Common mistakes: Sizes in inches"
    )
    assert tuple(skill.tags) == ("shown", "apcore:readonly", "apcore:idempotent")
    assert (skill.extensions or {})["apcore"]["x-when-to-use"] == "When an image is too large"


@pytest.mark.parametrize("display", ["text", {"a2a": "text"}, {"alias": 3, "tags": "no list"}, None])
def test_an_invalid_overlay_is_ignored(display: Any) -> None:
    descriptor = ModuleDescriptor("text.odd", None, "Odd", None, {}, {}, metadata={"display": display})
    skill = SkillMapper().to_skill(descriptor)
    assert skill is not None
    assert (skill.name, skill.description, tuple(skill.tags)) == ("Text Odd", "Odd", ())


def test_a_module_without_a_description_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    descriptor = ModuleDescriptor("text.odd", None, "", None, {}, {})
    assert SkillMapper().to_skill(descriptor) is None
    assert "Skipping module text.odd: missing description" in caplog.text


@pytest.mark.parametrize(
    ("schema", "modes"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, ("application/json",)),
        ({"type": "string"}, ("application/json", "text/plain")),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, ("application/json", "text/plain")),
        ({}, ("text/plain",)),
        (
            {"type": "object", "properties": {"a": {"type": "string", "format": "binary"}}},
            ("application/json", "*/*"),
        ),
    ],
)
def test_input_modes(schema: dict[str, Any], modes: tuple[str, ...]) -> None:
    assert SkillMapper().input_modes(schema) == modes


@pytest.mark.parametrize(("schema", "modes"), [({}, ("text/plain",)), ({"type": "object"}, ("application/json",))])
def test_output_modes(schema: dict[str, Any], modes: tuple[str, ...]) -> None:
    assert SkillMapper().output_modes(schema) == modes


def test_annotations_may_be_missing() -> None:
    skill = SkillMapper().to_skill(ModuleDescriptor("a", None, "x", None, {}, {}))
    assert skill is not None
    assert (skill.extensions or {})["apcore"]["annotations"]["open_world"] is True


# ---------------------------------------------------------------------------------------------------------- catalog


def test_the_catalog_follows_the_registry() -> None:
    registry = registry_of(resize=Resize(), nameless=Nameless(), hidden=Hidden())
    catalog = SkillCatalog(registry)
    changes: list[list[str]] = []
    catalog.on_change(lambda: changes.append(list(catalog.modules)))
    before = catalog.modules
    assert list(before) == ["resize"]
    registry.register("say", Say())
    registry.register("also.hidden", Hidden())
    registry.unregister("resize")
    assert list(catalog.modules) == ["say"]
    assert list(before) == ["resize"]  # a mapping that a caller holds does not change
    assert changes == [["resize", "say"], ["resize", "say"], ["say"]]
    catalog.close()
    registry.register("late", Say())
    assert list(catalog.modules) == ["say"]


def test_definitions_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = registry_of(resize=Resize(), say=Say())
    asked: list[str] = []
    made = registry.get_definition

    def get_definition(module_id: str) -> Any:
        asked.append(module_id)
        return made(module_id)

    monkeypatch.setattr(registry, "get_definition", get_definition)
    builder = builder_of(registry)
    for _ in range(5):
        builder.build()
    assert sorted(asked) == ["resize", "say"]


def test_many_threads_register_while_others_read() -> None:
    registry = registry_of(resize=Resize())
    catalog = SkillCatalog(registry)
    seen: list[BaseException] = []

    def register(first: int) -> None:
        for number in range(first, first + 20):
            registry.register(f"m{number}", Say())
            if number % 2:
                registry.unregister(f"m{number}")

    def read() -> None:
        try:
            for _ in range(200):
                for module in catalog.modules.values():
                    assert module.skill.id == module.id
        except BaseException as error:
            seen.append(error)

    threads = [threading.Thread(target=register, args=(first,)) for first in (0, 100, 200)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not seen
    assert sorted(catalog.modules) == sorted(registry.list())


def test_a_failing_listener_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    registry = registry_of(resize=Resize())
    catalog = SkillCatalog(registry)
    notified: list[int] = []

    def fails() -> None:
        raise ZeroDivisionError

    catalog.on_change(fails)
    catalog.on_change(lambda: notified.append(1))
    registry.register("say", Say())
    assert notified == [1]
    assert "ZeroDivisionError" in caplog.text


# ------------------------------------------------------------------------------------------------------------- card


def test_the_card() -> None:
    card = builder_of(registry_of(image__resize=Resize(), say=Say())).build()
    document = build_card(card, [])
    assert (document["name"], document["version"]) == ("Images", "2.0")
    assert document["description"] == "apcore agent with 2 skills"
    assert document["defaultInputModes"] == document["defaultOutputModes"] == ["application/json"]
    assert document["capabilities"]["streaming"] is True
    assert document["capabilities"]["stateTransitionHistory"] is True
    [resize, _] = document["skills"]
    assert resize["extensions"]["apcore"]["annotations"]["readonly"] is True
    [extension] = document["capabilities"]["extensions"]
    assert extension["uri"] == EXTENSION
    assert extension["params"]["skills"]["image.resize"] == resize["extensions"]["apcore"]
    assert "extensions" not in card_v1(document)["skills"][0]


ADMINS = ACL([ACLRule(["*"], ["admin.*"], "allow", conditions={"roles": ["admin"]}), ACLRule(["*"], ["say"], "allow")])


def test_callers_see_only_skills_that_they_may_call() -> None:
    registry = registry_of(admin__resize=Resize(), say=Say())
    builder = builder_of(registry, ADMINS, authenticated=True)
    assert [skill.id for skill in builder.build().skills] == ["say"]
    assert builder.build().description == "apcore agent with 1 skills"  # the number of hidden skills is not shown

    async def shown(*roles: str) -> list[str]:
        caller = Caller(Principal("ann", roles=frozenset(roles)))
        return [skill.id for skill in (await builder.extended(caller)).skills]

    assert asyncio.run(shown("admin")) == ["admin.resize", "say"]
    assert asyncio.run(shown()) == ["say"]


def test_an_acl_with_conditions_gets_the_arguments() -> None:
    rule = ACLRule(["*"], ["say"], "deny", conditions={"arguments": {"has_key": ["force"]}})
    access = AccessPolicy(Executor(registry_of(say=Say()), acl=ACL([rule, ACLRule(["*"], ["*"], "allow")])))

    async def allowed(inputs: dict[str, Any]) -> bool:
        return await access.allows(ANONYMOUS, "say", inputs)

    assert asyncio.run(allowed({"text": "x"}))
    assert not asyncio.run(allowed({"text": "x", "force": True}))


def test_identities() -> None:
    assert identity_of(ANONYMOUS) is None
    found = identity_of(Principal("ann", "acme", frozenset({"b", "a"}), {"mail": "x"}, "service"))
    assert (found.id, found.type, found.roles) == ("ann", "service", ("a", "b"))  # type: ignore[union-attr]
    assert dict(found.attrs) == {"mail": "x", "tenant": "acme"}  # type: ignore[union-attr]
