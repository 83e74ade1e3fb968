"""Converts the parts of a message to the input of a module.

    data         an object: the input itself; several are merged if no two have the same key
    text         JSON of an object: the input; other text: the property that takes plain text, if there is one
    file         the property that takes files; without one, the input is {uri or bytes, name, mimeType}

If a module's schema is a string, its input is passed through apcore as {"text": …}, since apcore only takes objects;
the module gets the text. Invalid input is rejected before a task is created, with JSON pointers into the input.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from keelbolt.apcore.catalog import Module
from keelbolt.apcore.errors_map import validation_errors
from keelbolt.apcore.library import SchemaValidationError
from keelbolt.apcore.schemas import (
    TEXT,
    Schema,
    alternatives,
    fitted,
    is_file,
    is_text,
    properties_of,
    text_property,
    types_of,
)
from keelbolt.errors import ParseError, RequestTooLargeError, SkillInputError
from keelbolt.protocol import strict_json
from keelbolt.protocol.types import Part

RESERVED = "_approval_token"
"""apcore's own key. A client that could send it could use an approval given for another call."""

MAX_ERRORS = 20
MAX_ERROR_CHARACTERS = 300
MAX_POINTER_CHARACTERS = 500

Input = dict[str, Any]


def parts_to_input(parts: Sequence[Part], module: Module) -> Input:
    """Return the input that a message holds. Raise SkillInputError if it is invalid."""
    if not parts:
        raise SkillInputError("Message must contain at least one Part")
    schema = module.input_schema
    if is_text(schema):
        return {TEXT: _plain_text(parts)}
    found: Input = {}
    texts: list[str] = []
    for part in parts:
        if part.kind == "data":
            _join(found, _object(part.data))
        elif part.text is not None:
            texts.append(part.text)
    if texts:
        _text(found, "\n".join(texts), schema)
    if files := [part for part in parts if part.kind in ("raw", "url")]:
        _Files(found, schema, raw=hasattr(module.model, "model_validate_json")).add(files)
    if RESERVED in found:
        raise SkillInputError(f"Invalid input: {RESERVED} is reserved")
    return _fitted(found, module)


def _plain_text(parts: Sequence[Part]) -> str:
    texts = [part.data if isinstance(part.data, str) else part.text for part in parts]
    text = "\n".join([text for text in texts if text is not None])
    if not text or len(texts) > sum(text is not None for text in texts):
        raise SkillInputError("Invalid input: the input of this skill must be text")
    return text


def with_answer(inputs: Input, parts: Sequence[Part], module: Module) -> Input:
    """Return the input with the content of an answer: its objects, its JSON text, and plain text if none was given.

    If the input is text, the answer's text replaces it.
    """
    if is_text(module.input_schema):
        said = "\n".join([part.text for part in parts if part.text])
        return {TEXT: said} if said else inputs
    found: Input = {}
    text: list[str] = []
    for part in parts:
        if isinstance(part.data, dict):
            found |= part.data
        elif part.text is not None:
            text.append(part.text)
    joined = "\n".join(text)
    name = text_property(module.input_schema)
    if (value := _json_object(joined)) is not None:
        found |= value
    elif joined and name is not None and name not in inputs and name not in found:
        found[name] = joined
    found.pop(RESERVED, None)
    return _fitted(inputs | found, module)


def _fitted(found: Input, module: Module) -> Input:
    """Return the input with whole numbers as integers.

    This uses the descriptor's schema, which has all definitions; the inlined one is cut at recursive definitions.
    """
    schema = getattr(module.descriptor, "input_schema", None)
    whole: Input = fitted(found, schema if isinstance(schema, Mapping) else module.input_schema)
    return whole


def _json_object(text: str) -> Input | None:
    if text.lstrip()[:1] != "{":
        return None
    try:
        value = strict_json.read(text.encode("utf-8", "surrogatepass"))
    except (ParseError, RequestTooLargeError):
        return None
    return value if isinstance(value, dict) else None


def check_input(given: Input, module: Module) -> None:
    """Raise SkillInputError if apcore would refuse this input; the same check without rebuilding schemas."""
    model = module.model
    if not hasattr(model, "model_validate"):
        return
    value = given[TEXT] if is_text(module.input_schema) else given
    try:
        if hasattr(model, "model_validate_json") and (text := _json(value)) is not None:
            model.model_validate_json(text, strict=True)
        else:  # bytes, or a plain JSON schema that apcore has wrapped
            model.model_validate(value, strict=True)
    except ValidationError as error:
        raise SkillInputError("Invalid params", list(_errors(error)), kind="SchemaValidationError") from None
    except SchemaValidationError as error:
        found = [_without_value(item) for item in validation_errors(error.details or {})]
        raise SkillInputError("Invalid params", found, kind="SchemaValidationError") from None


def _without_value(item: Mapping[str, str]) -> dict[str, str]:
    """Return a JSON Schema error in pydantic's form: the missing field in the path, and no value in the message."""
    keyword, path = item["keyword"], item["path"]
    missing = _MISSING.match(item["message"]) if keyword == "required" else None
    if missing is not None:
        return {"path": path + _pointer(missing[2]), "message": "Field required", "keyword": "missing"}
    return {"path": path, "message": f"Input does not satisfy {keyword or 'the schema'}", "keyword": keyword}


_MISSING = re.compile(r"^(['\"])(.*)\1 is a required property")


def _json(given: Any) -> str | None:
    try:
        return json.dumps(given)
    except (TypeError, ValueError):
        return None


def _errors(error: ValidationError) -> Iterator[dict[str, str]]:
    """Yield the errors, each with a JSON pointer that includes a missing field. Values are not repeated."""
    for item in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_ERRORS]:
        yield {"path": _pointer(*item["loc"]), "message": item["msg"][:MAX_ERROR_CHARACTERS], "keyword": item["type"]}


def _pointer(*steps: int | str) -> str:
    """Return a JSON pointer of limited length; clients choose the names."""
    path = "".join([f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps])
    return path[:MAX_POINTER_CHARACTERS]


def _object(data: Any) -> Input:
    if not isinstance(data, dict):
        raise SkillInputError("Invalid input: the input of a skill must be a JSON object")
    return data


def _join(found: Input, more: Mapping[str, Any]) -> None:
    if twice := found.keys() & more.keys():
        name = min(twice)
        raise SkillInputError(
            errors=[{"path": _pointer(name), "message": "two parts of the message set this property"}]
        )
    found.update(more)


def _text(found: Input, text: str, schema: Schema) -> None:
    """Add a text part: JSON of an object is the input, other text goes to the property for plain text."""
    name = text_property(schema)
    plain = name is not None and name not in found
    value: Any = None
    if text.lstrip()[:1] == "{" or not plain:
        try:
            value = strict_json.read(text.encode("utf-8", "surrogatepass"))
        except (ParseError, RequestTooLargeError) as error:
            if not plain and found:
                return  # text beside a data part is a comment, not the input
            if not plain:
                raise SkillInputError("Invalid JSON in TextPart") from error
    if isinstance(value, dict) and (not plain or _meant(value, schema)):
        _join(found, value)
    elif plain:
        assert name is not None
        found[name] = text
    elif not found:
        raise SkillInputError("Invalid input: the input of a skill must be a JSON object")


def _meant(value: Input, schema: Schema) -> bool:
    """Return whether an object is meant as the input rather than as text that happens to be JSON."""
    return bool(value.keys() & properties_of(schema).keys()) or not properties_of(schema)


# ------------------------------------------------------------------------------------------------------------- files


class _Files:
    """Puts files into the properties that take them. ``raw``: the module's model takes bytes; JSON Schemas don't."""

    def __init__(self, found: Input, schema: Schema, *, raw: bool) -> None:
        self._found = found
        self._properties = properties_of(schema)
        self._raw = raw

    def add(self, files: Sequence[Part]) -> None:
        properties = self._properties
        free = [name for name, about in properties.items() if name not in self._found and (_one(about) or _list(about))]
        for part in files:
            name = (part.metadata or {}).get("property")
            if not isinstance(name, str) or name not in properties:
                name = next(iter(free), None)
            if name is None:
                if len(files) > 1 or not ({"uri", "bytes"} & properties.keys() or not properties):
                    raise SkillInputError("Invalid input: this skill does not accept this file")
                _join(self._found, _described(part, properties))
            elif _list(properties[name]):
                self._found.setdefault(name, []).append(self._value(part, properties[name]["items"]))
            else:
                _join(self._found, {name: self._value(part, properties[name])})
                free = [each for each in free if each != name]

    def _value(self, part: Part, schema: Mapping[str, Any]) -> Any:
        """Return a file in the form that its property takes: bytes, base64, a URI, or an object that describes it."""
        for choice in alternatives(schema):
            if "object" in types_of(choice):
                return _described(part, properties_of(choice))
            if part.url is not None and choice.get("format") == "uri":
                return part.url
            if part.raw is not None and choice.get("format") == "binary" and self._raw:
                return part.raw
            if part.raw is not None and "string" in types_of(choice) and choice.get("format") != "uri":
                return base64.b64encode(part.raw).decode()
        raise SkillInputError("Invalid input: send the bytes of this file instead of a URL, or a URL instead of bytes")


def _one(schema: Schema) -> bool:
    return is_file(schema) or schema.get("format") == "uri"


def _list(schema: Mapping[str, Any]) -> bool:
    items = schema.get("items")
    return isinstance(items, Mapping) and _one(dict(items))


def _described(part: Part, properties: Mapping[str, Any]) -> Input:
    fields: dict[str, Any] = {"name": part.filename, "mimeType": part.media_type}
    if part.url is not None:
        fields["uri"] = part.url
    else:
        fields["bytes"] = base64.b64encode(part.raw or b"").decode()
    return {key: value for key, value in fields.items() if value is not None and (not properties or key in properties)}
