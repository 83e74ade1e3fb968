"""The skills of a registry as a snapshot, replaced whenever a module is added or removed in any thread."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from types import MappingProxyType
from typing import Any

from pydantic_core import to_jsonable_python

from keelbolt.apcore.library import StreamingModule
from keelbolt.apcore.schemas import Schema, SchemaConverter, is_file, is_text, properties_of, text_property
from keelbolt.protocol.card import SkillConfig

logger = logging.getLogger("keelbolt.apcore")

EVENTS = ("register", "unregister")


@dataclass(frozen=True, slots=True)
class Module:
    """A module that is a skill: its descriptor, which is expensive to create, and values derived from it."""

    id: str
    skill: SkillConfig
    descriptor: Any = field(repr=False)
    input_schema: Schema = field(repr=False)
    model: Any = field(repr=False, default=None)  # the pydantic class of its input, if it has one
    streams: bool = False
    requires_approval: bool = False
    only_once: bool = False  # destructive and not idempotent: if the outcome is unknown, the user is asked
    gives_text: bool = False  # its output schema is a string
    public_errors: bool | frozenset[str] = False  # codes of its errors whose messages callers may see; True: all

    def publishes(self, code: str) -> bool:
        """Whether the module declares the message of its errors with this code as public."""
        return self.public_errors if isinstance(self.public_errors, bool) else code in self.public_errors


class SkillCatalog:
    """The skills of a registry.

    ``modules`` is an immutable snapshot: reading it never blocks, not even while another thread registers a hundred
    modules. Modules without a description, or marked as not discoverable, are not skills.
    """

    def __init__(self, registry: Any, *, mapper: SkillMapper | None = None) -> None:
        self.registry = registry
        self._mapper = mapper or SkillMapper()
        self._lock = threading.Lock()  # serializes writers: each builds on the previous snapshot
        self._listeners: list[Callable[[], None]] = []
        self._kept: set[str] = set()  # modules that are being replaced
        self._modules: Mapping[str, Module] = MappingProxyType({})
        subscribe = getattr(registry, "on", None)
        if callable(subscribe):  # before the first read: a change in between is read twice instead of missed
            for event in EVENTS:
                subscribe(event, self._changed)
        with self._lock:
            found = [self._read(module_id) for module_id in registry.list()]
            self._modules = MappingProxyType({module.id: module for module in found if module is not None})

    @property
    def modules(self) -> Mapping[str, Module]:
        """The current skills by id, sorted."""
        return self._modules

    def get(self, module_id: str) -> Module | None:
        return self._modules.get(module_id)

    def __len__(self) -> int:
        return len(self._modules)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call the listener after each change, in the thread that made the change."""
        self._listeners.append(listener)

    @contextmanager
    def keeping(self, module_id: str) -> Iterator[None]:
        """Keep the module in the snapshot while the registry replaces it; listeners are called once, afterwards."""
        self._kept.add(module_id)
        try:
            yield
        finally:
            self._kept.discard(module_id)
            self._changed(module_id)

    def close(self) -> None:
        """Unsubscribe from the registry."""
        self._listeners.clear()
        unsubscribe = getattr(self.registry, "off", None)
        if callable(unsubscribe):
            for event in EVENTS:
                unsubscribe(event, self._changed)

    def _changed(self, module_id: str, _module: Any = None) -> None:
        """Read a changed module again. The registry's current state counts, not the event."""
        if module_id in self._kept:
            return
        with self._lock:
            found = self._read(module_id)
            others = {key: value for key, value in self._modules.items() if key != module_id}
            if found is not None:
                others[module_id] = found
            self._modules = MappingProxyType(dict(sorted(others.items())))
        for listener in tuple(self._listeners):
            try:
                listener()
            except Exception:
                logger.exception("a listener of the skill catalog raised")

    def _read(self, module_id: str) -> Module | None:
        """Return a module as the registry has it. A module that can't be described is logged and left out."""
        try:
            module = self.registry.get(module_id) if hasattr(self.registry, "get") else None
            _define(module)
            descriptor = self.registry.get_definition(module_id)
            if descriptor is None or not _flag(descriptor, "discoverable", default=True):
                return None
            skill = self._mapper.to_skill(descriptor)
            if skill is None:
                return None
        except Exception:
            logger.exception("Skipping module %s: it can't be described", module_id)
            return None
        declared = (skill.extensions or {}).get("apcore", {})
        return Module(
            module_id,
            skill,
            descriptor,
            declared.get("inputSchema", {}),
            getattr(module, "input_schema", None),
            isinstance(module, StreamingModule),
            _flag(descriptor, "requires_approval", default=False),
            _flag(descriptor, "destructive", default=False) and not _flag(descriptor, "idempotent", default=False),
            is_text(declared.get("outputSchema", {})),
            _public_errors(descriptor),
        )


def _define(module: Any) -> None:
    """Complete pydantic models whose annotations are strings, with the names of the file that defines the module.

    apcore executes files without an entry in ``sys.modules``, where pydantic would look names up.
    """
    names = getattr(getattr(module, "execute", None), "__globals__", None)
    for model in (getattr(module, "input_schema", None), getattr(module, "output_schema", None)):
        if names is not None and getattr(model, "__pydantic_complete__", True) is False:
            model.model_rebuild(_types_namespace=names)  # type: ignore[union-attr]  # it is a pydantic class


def _public_errors(descriptor: Any) -> bool | frozenset[str]:
    """``metadata = {"public_errors": True}`` on a module, or a list of codes."""
    metadata = getattr(descriptor, "metadata", None)
    declared = metadata.get("public_errors", False) if isinstance(metadata, Mapping) else False
    if isinstance(declared, list | tuple | set | frozenset):
        return frozenset(str(code) for code in declared)
    return declared is True


def _flag(descriptor: Any, name: str, *, default: bool) -> bool:
    annotations = getattr(descriptor, "annotations", None)
    if isinstance(annotations, Mapping):
        return bool(annotations.get(name, default))
    return bool(getattr(annotations, name, default))


# --------------------------------------------------------------------------------------------------------------- skills


MAX_EXAMPLES = 10
ANNOTATIONS = ("readonly", "destructive", "idempotent", "requires_approval", "open_world")
"""The annotations of a module that describe the possible effects of a call."""

TAGS = {
    "readonly": "apcore:readonly",
    "destructive": "apcore:destructive",
    "idempotent": "apcore:idempotent",
    "requires_approval": "apcore:requires-approval",
}
"""Tags of a skill for annotations that are true; the same as in apcore-a2a."""

INTENT = ("x-when-to-use", "x-when-not-to-use", "x-common-mistakes", "x-workflow-hints")
"""Keys of a module's metadata that help a model to choose it. They are part of the description."""

JSON = "application/json"
TEXT = "text/plain"
ANY = "*/*"


@dataclass(frozen=True, slots=True)
class Display:
    """Display metadata of a module: ``metadata.display``, in which ``a2a`` overrides the values for all protocols."""

    alias: str | None = None
    description: str | None = None
    guidance: str | None = None
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Display:
        general = metadata.get("display")
        general = general if isinstance(general, Mapping) else {}
        own = general.get("a2a")
        merged = (
            {**general, **{key: value for key, value in own.items() if value}} if isinstance(own, Mapping) else general
        )
        words = {key: merged.get(key) for key in ("alias", "description", "guidance")}
        tags = merged.get("tags")
        return cls(
            **{key: value.strip() or None for key, value in words.items() if isinstance(value, str)},
            tags=tuple(str(tag) for tag in tags) if isinstance(tags, list | tuple) else (),
        )


class SkillMapper:
    """Creates the card entry of a module."""

    def __init__(self, schemas: SchemaConverter | None = None) -> None:
        self._schemas = schemas or SchemaConverter()

    def to_skill(self, descriptor: Any) -> SkillConfig | None:
        """Return the skill of a module; log a warning and return None if the module has no description."""
        description = (getattr(descriptor, "description", None) or "").strip()
        if not description:
            logger.warning("Skipping module %s: missing description", descriptor.module_id)
            return None
        about = getattr(descriptor, "metadata", None)
        about = about if isinstance(about, Mapping) else {}
        display = Display.of(about)
        intent = {key: str(about[key]) for key in INTENT if about.get(key)}
        input_schema = self._schemas.convert_input_schema(descriptor)
        output_schema = self._schemas.convert_output_schema(descriptor)
        examples = self._examples(descriptor)
        declared: dict[str, Any] = {"annotations": self._annotations(getattr(descriptor, "annotations", None))}
        declared |= {"inputSchema": input_schema} if input_schema else {}
        declared |= {"outputSchema": output_schema} if output_schema else {}
        declared |= {"examples": examples} if examples else {}
        declared |= intent
        tags = display.tags or tuple(str(tag) for tag in getattr(descriptor, "tags", None) or ())
        return SkillConfig(
            id=descriptor.module_id,
            name=display.alias or getattr(descriptor, "name", None) or self.humanized(descriptor.module_id),
            description=_described(display.description or description, display.guidance, intent),
            tags=tuple(dict.fromkeys((*tags, *(TAGS[name] for name in TAGS if declared["annotations"][name])))),
            examples=tuple(_example_text(example) for example in examples) or None,
            input_modes=self.input_modes(input_schema),
            output_modes=self.output_modes(output_schema),
            extensions={"apcore": declared},
        )

    @staticmethod
    def humanized(module_id: str) -> str:
        """Return a title: "Image Resize All" for image.resize_all."""
        return module_id.replace(".", " ").replace("_", " ").title()

    def input_modes(self, schema: Schema) -> tuple[str, ...]:
        """Return the media types that a message to this skill may hold. Data and JSON as text are always accepted."""
        if not schema:
            return (TEXT,)
        modes = [JSON]
        if self._schemas.detect_root_type(schema) == "string" or text_property(schema) is not None:
            modes.append(TEXT)
        if takes_files(schema):
            modes.append(ANY)
        return tuple(modes)

    def output_modes(self, schema: Schema) -> tuple[str, ...]:
        """Return the media types of this skill's artifacts."""
        if not schema or is_text(schema):
            return (TEXT,)
        return (JSON, "application/octet-stream") if takes_files(schema) else (JSON,)

    def _examples(self, descriptor: Any) -> list[dict[str, Any]]:
        found = []
        for example in (getattr(descriptor, "examples", None) or ())[:MAX_EXAMPLES]:
            plain = asdict(example) if is_dataclass(example) and not isinstance(example, type) else example
            if isinstance(plain, Mapping):
                kept = {key: value for key, value in plain.items() if value is not None}
                found.append(to_jsonable_python(kept, fallback=str, inf_nan_mode="strings"))
        return found

    def _annotations(self, annotations: Any) -> dict[str, bool]:
        defaults = {"open_world": True}
        if isinstance(annotations, Mapping):
            return {name: bool(annotations.get(name, defaults.get(name, False))) for name in ANNOTATIONS}
        return {name: bool(getattr(annotations, name, defaults.get(name, False))) for name in ANNOTATIONS}


def takes_files(schema: Schema) -> bool:
    """Return whether a property of this object is a file or a list of files."""
    for found in properties_of(schema).values():
        items = found.get("items")
        if is_file(found) or (isinstance(items, Mapping) and is_file(items)):
            return True
    return bool({"uri", "mimeType"} <= set(properties_of(schema)))


def _described(description: str, guidance: str | None, intent: Mapping[str, str]) -> str:
    """Return the description with the guidance and intent that help to choose the skill."""
    more = [f"Guidance: {guidance}"] if guidance else []
    more += [f"{key.removeprefix('x-').replace('-', ' ').capitalize()}: {text}" for key, text in intent.items()]
    return "\n\n".join([description, *more])


def _example_text(example: Mapping[str, Any]) -> str:
    """Return an example as the JSON of its input: A2A examples are texts that can be sent."""
    return json.dumps(example.get("inputs", {}), ensure_ascii=False)
