"""Maps a module's descriptor to a skill of the agent card."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from keelbolt.apcore.schemas import Schema, SchemaConverter, is_file, is_text, properties_of, text_property
from keelbolt.protocol.card import SkillConfig

logger = logging.getLogger("keelbolt.apcore")

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
