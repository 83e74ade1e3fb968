"""The skills of a registry as a snapshot, replaced whenever a module is added or removed in any thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from keelbolt.apcore.library import StreamingModule
from keelbolt.apcore.schemas import Schema, is_text
from keelbolt.apcore.skills import SkillMapper
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
        told = (skill.extensions or {}).get("apcore", {})
        return Module(
            module_id,
            skill,
            descriptor,
            told.get("inputSchema", {}),
            getattr(module, "input_schema", None),
            isinstance(module, StreamingModule),
            _flag(descriptor, "requires_approval", default=False),
            _flag(descriptor, "destructive", default=False) and not _flag(descriptor, "idempotent", default=False),
            is_text(told.get("outputSchema", {})),
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
