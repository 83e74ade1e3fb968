"""`keelbolt conformance`: checks a user's own implementation against the laws of its contract."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.failure import FAILED
from keelbolt.cli.output import as_json, echo, print_json, progress

if TYPE_CHECKING:
    from keelbolt.conformance.suite import ConformanceReport, Suite


@click.group()
def conformance() -> None:
    """Check an implementation against the laws of its contract.

    \b
    Example:
      keelbolt conformance kernel my_package.engine:factory
      keelbolt conformance task-storage my_package.tasks:MyStorage
      keelbolt conformance state-store my_package.state:create_store
      keelbolt conformance turn-callbacks my_package.turns:make_storage
    """


@conformance.command()
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--only", multiple=True, metavar="NAME", help="Check only this law or group; repeatable.")
@as_json
def kernel(factory: str, only: tuple[str, ...], json_output: bool) -> None:
    """Run every law of the kernel's contract on an engine of your own.

    MODULE:FACTORY is a function that returns an unopened kernel, or a KernelSubject of keelbolt.conformance.kernel,
    which has more options. The current directory is on the import path. The exit code is 1 if a law is broken.

    \b
    Example:
      keelbolt conformance kernel keelbolt.kernel.memory:MemoryKernel --only records
    """
    _print(_check("kernel", factory, only), json_output)


@conformance.command()
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--only", multiple=True, metavar="NAME", help="Check only this law or group; repeatable.")
@as_json
def task_storage(factory: str, only: tuple[str, ...], json_output: bool) -> None:
    """Run every law of the task storage contract on a Storage of your own.

    MODULE:FACTORY is a class of storages, a function that returns an empty storage at each call, or a
    TaskStorageSubject of keelbolt.conformance.task_storage, which has more options. The laws of optional methods apply
    if the class overrides them. The current directory is on the import path. The exit code is 1 if a law is broken.

    \b
    Example:
      keelbolt conformance task-storage keelbolt.tasks.storage:InMemoryStorage --only tasks
    """
    _print(_check("task_storage", factory, only), json_output)


@conformance.command()
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--only", multiple=True, metavar="NAME", help="Check only this law or group; repeatable.")
@click.option("--checklist", is_flag=True, help="Print the specification's checklist, filled in, instead of the laws.")
@as_json
def state_store(factory: str, only: tuple[str, ...], checklist: bool, json_output: bool) -> None:
    """Run every law of the StateStore specification on a store of your own.

    MODULE:FACTORY is a class of stores, a function or coroutine function that returns an empty store at each call (as
    for penguiflow-admin), or a StateStoreSubject of keelbolt.conformance.state_store, which has more options. The laws
    of a capability apply to stores that have its methods. The current directory is on the import path. The exit code is
    1 if a law is broken.

    \b
    Example:
      keelbolt conformance state-store penguiflow.state:InMemoryStateStore --only events
    """
    from keelbolt.conformance.state_store import checklist as filled_in

    report = _check("state_store", factory, only)
    _print(report, json_output, filled_in(report) if checklist else None)


@conformance.command()
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--only", multiple=True, metavar="NAME", help="Check only this law or group; repeatable.")
@as_json
def turn_callbacks(factory: str, only: tuple[str, ...], json_output: bool) -> None:
    """Run every law of the 27 callbacks on a storage adapter of your own.

    MODULE:FACTORY is a function that returns an empty adapter at each call (a mapping of the callbacks, or an object
    with callbacks()), or a TurnCallbacksSubject of keelbolt.conformance.turn_callbacks, which has more options. The
    current directory is on the import path. The exit code is 1 if a law is broken.

    \b
    Example:
      keelbolt conformance turn-callbacks my_package.turns:make_storage --only records
    """
    _print(_check("turn_callbacks", factory, only), json_output)


def _check(package: str, factory: str, only: tuple[str, ...]) -> ConformanceReport:
    """Run the laws of a package of keelbolt.conformance."""
    suite: Suite[Any, Any] = importlib.import_module(f"keelbolt.conformance.{package}").SUITE
    sys.path.insert(0, "")
    with progress("checking") as tell:
        return asyncio.run(suite.validate(suite.load(factory), only=only, progress=lambda done: tell(done.law.name)))


def _print(report: ConformanceReport, json_output: bool, text: str | None = None) -> None:
    if json_output:
        print_json(report.to_dict())
    else:
        echo(text or str(report))
    if not report.ok:
        raise SystemExit(FAILED)
