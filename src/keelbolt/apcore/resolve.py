"""Resolves the argument of ``serve(…)`` to a registry, its executor and the project's metadata."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from keelbolt.apcore.extensions import Extensions, load_extensions
from keelbolt.apcore.library import ACL, Config, Executor, ModuleError, register_sys_modules
from keelbolt.errors import ExtensionsBroken

logger = logging.getLogger("keelbolt.apcore")

NO_MODULES = "Registry contains zero modules; at least one module is required to serve an A2A agent"
DEFAULT_NAME = "apcore-agent"
DEFAULT_VERSION = "0.0.0"


@dataclass(frozen=True, slots=True)
class Project:
    """Name, description and version for the agent's card."""

    name: str
    description: str | None  # None: the card states the number of skills
    version: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """A registry, the executor that runs its modules, and their configurations."""

    registry: Any
    executor: Any
    configs: tuple[Any, ...] = ()

    def project(self, name: str | None, description: str | None, version: str | None) -> Project:
        """Return the given values, or else those of a configuration's ``project``, or else the defaults."""
        return Project(
            name or self._text("project.name") or DEFAULT_NAME,
            description or self._text("project.description"),
            version or self._text("project.version") or DEFAULT_VERSION,
        )

    def configured(self, key: str) -> Any:
        """Return the value of a dotted key in the first configuration that has it, or None."""
        for config in self.configs:
            value = _value(config, key)
            if value is not None and str(value).strip():
                return value
        return None

    def _text(self, key: str) -> str | None:
        found = self.configured(key)
        return None if found is None else str(found)


def resolve(given: object) -> Resolved:
    """Return the registry and the executor, recognised by their methods. Raise TypeError or ValueError.

    ``given`` is an apcore Registry (it has ``list`` and ``get_definition``), an Executor (it has ``call_async``), an
    APCore client (it has both), the path of an extensions directory, or the loaded `Extensions`.
    """
    if isinstance(given, str | os.PathLike | Extensions):
        found = given if isinstance(given, Extensions) else load_extensions(given)
        try:
            executor = executor_for(found.registry, found.config)
        except ModuleError as error:
            raise ExtensionsBroken(f"apcore's configuration can't be used: {error.message}") from error
        resolved = Resolved(found.registry, executor, (found.config,))
    elif _can(given, "list", "get_definition"):
        configs = tuple(_configs(given))
        resolved = Resolved(given, executor_for(given, configs[0] if configs else None), (*configs, _ProjectFile()))
    elif _can(given, "call_async"):
        executor = getattr(given, "executor", given)
        registry = getattr(given, "registry", None)
        if not _can(registry, "list", "get_definition"):
            raise TypeError(
                f"{type(given).__name__} has call_async(), but no registry with list() and get_definition()"
            )
        resolved = Resolved(registry, executor, (*_configs(given, executor, registry), _ProjectFile()))
    else:
        raise TypeError(
            "serve() takes an apcore Registry (list() and get_definition()), an Executor (call_async()) or the path of "
            f"an extensions directory, not {type(given).__name__}"
        )
    if not resolved.registry.list():
        raise ValueError(NO_MODULES)
    return resolved


def check_methods(given: object, kind: str, methods: Sequence[str]) -> None:
    """Raise TypeError that lists the missing methods."""
    if missing := [name for name in methods if not callable(getattr(given, name, None))]:
        raise TypeError(f"{type(given).__name__} does not satisfy the {kind} protocol; it lacks {', '.join(missing)}")


def executor_for(registry: Any, config: Any = None) -> Any:
    """Return an executor for a registry given without one: with its ACL, and without default timeouts.

    apcore's defaults end a module after 30 seconds, regardless of its deadline. A timeout that the project's
    configuration declares is kept.
    """
    if not isinstance(config, Config):
        config = None
    declared = _plain(config.declared) if config is not None else {}
    data = _plain(config.data) if config is not None else {}
    chosen = declared.get("executor") or {}
    data["executor"] = {
        **(data.get("executor") or {}),
        "default_timeout": chosen.get("default_timeout", 0),
        "global_timeout": chosen.get("global_timeout", 0),
    }
    acl = ACL.discover(config) if config is not None else None
    return Executor(registry, config=Config(data=data), acl=acl)


def add_system_modules(resolved: Resolved) -> None:
    """Register apcore's ``system.*`` modules, as configured in ``sys_modules``."""
    section = resolved.configured("sys_modules")
    chosen = dict(section) if isinstance(section, Mapping) else {}
    config = Config(data={"sys_modules": {**chosen, "enabled": True}})
    register_sys_modules(resolved.registry, resolved.executor, config, fail_on_error=True)


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that belongs to apcore."""
    own = data.get("apcore", data)
    return deepcopy(dict(own))


def _configs(*owners: object) -> Iterator[Any]:
    """Yield the configurations of these objects; apcore's classes have no public attribute for them."""
    for owner in owners:
        for name in ("config", "_config"):
            config = getattr(owner, name, None)
            if config is not None:
                yield config
                break


class _ProjectFile:
    """apcore's configuration file of this directory, read on access."""

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return Config.load(validate=False).get(key, default)
        except Exception as error:  # noqa: BLE001 - the file may be invalid in any way
            logger.warning("apcore's configuration file could not be read: %s", error)
            return default


def _value(config: Any, key: str) -> Any:
    """Return the value of a dotted key in a Config, or in nested mappings."""
    if isinstance(config, Mapping):
        found: Any = config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found
    get = getattr(config, "get", None)
    return get(key) if callable(get) else None


def _can(given: object, *methods: str) -> bool:
    return all(callable(getattr(given, name, None)) for name in methods)
