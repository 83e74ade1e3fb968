"""Validates configurations before anything runs, and reports all problems at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from keelbolt.names import suggestion
from keelbolt.turns.callbacks import CALLBACKS, Callback
from keelbolt.turns.events import KINDS
from keelbolt.turns.tools import Tool, arity_problem

_STORES = {"gate_store": ("open", "settle", "wait"), "progress_store": ("begin", "reached", "leave")}
PIPELINES = ("turn_input_pipeline", "turn_output_pipeline", "dispatch_input_pipeline", "dispatch_output_pipeline")
MODES = ("deferred", "immediate")


def callback_problems(config: Mapping[str, Any], *, required: bool = True) -> list[str]:
    """Return the problems of the storage callbacks in this configuration."""
    return [
        problem
        for callback in CALLBACKS.values()
        if (problem := _callback_problem(config, callback, needed=required and callback.required)) is not None
    ]


def _callback_problem(config: Mapping[str, Any], callback: Callback, *, needed: bool) -> str | None:
    function = config.get(callback.name)
    if function is None:
        if needed:
            return f"{callback.name} is missing; pass a function {callback.shape}, or spread noop_storage()"
        if callback.name in config and callback.required:
            return f"{callback.name} is None; pass a function {callback.shape}, or leave it out"
        return None
    if not callable(function):
        return f"{callback.name} is {type(function).__name__}; pass a function {callback.shape}"
    wrong = arity_problem(function, callback.arity)
    return None if wrong is None else f"{callback.name} {wrong}; it must take {callback.arity}: {callback.shape}"


def executor_problems(config: Mapping[str, Any]) -> list[str]:
    executor = config.get("executor_callback")
    if executor is None:
        return ["executor_callback is missing; pass a function (ctx, helpers)"]
    return [] if callable(executor) else [f"executor_callback is {type(executor).__name__}; pass a function"]


def tool_problems(tools: object) -> list[str]:
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        return [f"tools must be a list of Tool, not {type(tools).__name__}"]
    problems: list[str] = []
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not isinstance(tool, Tool):
            problems.append(f"tools[{index}] is {type(tool).__name__}; it must be a Tool")
        elif tool.name in names:
            problems.append(f"tools[{index}] is a second tool named {tool.name!r}; rename one of them")
        else:
            names.add(tool.name)
    return problems


def pipeline_problems(name: str, middleware: object) -> list[str]:
    if isinstance(middleware, str | bytes | Mapping) or not isinstance(middleware, Iterable):
        return [f"{name} must be a list of functions (ctx, next), not {type(middleware).__name__}"]
    return [
        f"{name}[{index}] is {type(step).__name__}; it must be a function (ctx, next)"
        for index, step in enumerate(middleware)
        if not callable(step)
    ]


def persistence_problems(persistence: object) -> list[str]:
    """Return the problems of ``persistence``: `"deferred"`, `"immediate"`, or a dict of them by kind or ``"*"``."""
    if isinstance(persistence, str):
        return [] if persistence in MODES else [f"persistence must be deferred or immediate, not {persistence!r}"]
    if not isinstance(persistence, Mapping):
        return [f"persistence must be deferred, immediate or a dict of kinds, not {type(persistence).__name__}"]
    unknown = [repr(kind) for kind in persistence if kind not in {*KINDS, "*"}]
    wrong = [repr(mode) for mode in persistence.values() if mode not in MODES]
    return [
        *(f"persistence: unknown kind {kind}; the kinds are {', '.join(KINDS)} and *" for kind in unknown),
        *(f"persistence of a kind must be deferred or immediate, not {mode}" for mode in wrong),
    ]


def option_problems(config: Mapping[str, Any]) -> list[str]:
    """Return the problems of the options that have a default."""
    problems: list[str] = []
    limit = config.get("max_iterations")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        problems.append(f"max_iterations must be an integer of at least 1, or None for no limit, not {limit!r}")
    wait = config.get("listener_timeout_seconds")
    if wait is not None and (isinstance(wait, bool) or not isinstance(wait, int | float) or not wait > 0):
        problems.append(f"listener_timeout_seconds must be a number above 0, or None, not {wait!r}")
    unit = config.get("unit_of_work")
    if unit is not None and not callable(unit):
        problems.append(
            f"unit_of_work must be a function (ctx) that returns an async context manager, not {_named(unit)}"
        )
    for name, methods in _STORES.items():
        store = config.get(name)
        if store is not None and not all(callable(getattr(store, method, None)) for method in methods):
            words = f"{', '.join(methods[:-1])} and {methods[-1]}"
            problems.append(f"{name} must have the methods {words}; {_named(store)} does not")
    if not isinstance(config.get("check_artifact_ids", False), bool):
        problems.append("check_artifact_ids must be True or False")
    return problems


def unknown_problems(config: Mapping[str, Any], known: Iterable[str]) -> list[str]:
    names = set(known)
    return [f"{name} is unknown{suggestion(name, names)}" for name in config if name not in names]


def _named(value: object) -> str:
    return type(value).__name__
