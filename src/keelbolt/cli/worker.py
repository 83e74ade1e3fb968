"""`keelbolt worker`: runs tasks in this process, beside any number of others on the same storage."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.loading import load_worker, opened
from keelbolt.cli.options import (
    log_format_options,
    log_level_options,
    policies_of,
    retain_option,
    storage_option,
    task_options,
    variable_of,
)
from keelbolt.observability.logs import log_to_stderr

if TYPE_CHECKING:
    from keelbolt.data.retention import FacePolicy
    from keelbolt.tasks.settings import TaskSettings
    from keelbolt.tasks.worker import AnyWorker

logger = logging.getLogger("keelbolt.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _settings(command: Any) -> Any:
    for flag, options in reversed(task_options):
        command = click.option(flag, envvar=variable_of(flag), **options)(command)
    return command


@click.command()
@click.argument("worker", metavar="MODULE:WORKER")
@storage_option()
@_settings
@click.option(
    "--drain-seconds",
    envvar="KEELBOLT_DRAIN_SECONDS",
    type=float,
    metavar="SECONDS",
    help="At shutdown: time for running tasks to end before they are released.  [default: 10]",
)
@retain_option
@click.option("--log-level", envvar="KEELBOLT_LOG_LEVEL", **log_level_options)
@click.option("--log-format", **log_format_options)
def worker(worker: str, url: str, retain: tuple[str, ...], log_level: str, log_format: str, **settings: Any) -> None:
    """Run the tasks of a storage with this worker, until SIGTERM or Ctrl-C.

    MODULE:WORKER is a Worker, a subclass of it or an async function; the current directory is on the import path. Any
    number of processes, on any machines that reach the storage, can run tasks: each task runs in one process, and if
    that process dies, another one takes it over.

    At shutdown the process starts no new tasks, and after --drain-seconds it releases running tasks to other processes.
    A second signal ends the process at once, also without data loss. Every option is also read from the environment:
    KEELBOLT_CONCURRENCY, KEELBOLT_LEASE_SECONDS and so on.

    \b
    Example:
      keelbolt worker agent:Echo --storage sqlite:///agent.db --concurrency 10
    """
    from keelbolt.tasks.settings import TaskSettings

    chosen = TaskSettings.of(**settings)
    retention = policies_of(retain)
    found = load_worker(worker)
    log_to_stderr(as_json=log_format == "json", level=log_level)
    asyncio.run(_work(worker, found, url, chosen, retention))


async def _work(name: str, worker: AnyWorker, url: str, settings: TaskSettings, retention: list[FacePolicy]) -> None:
    from keelbolt.tasks.engine import TaskEngine

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        stopped.set()
        for each in SIGNALS:  # the next signal has its usual effect
            loop.remove_signal_handler(each)

    for each in SIGNALS:
        loop.add_signal_handler(each, stop)
    kernel = await opened(url, create=True)
    async with kernel, TaskEngine(kernel, worker, settings=settings, retention=retention) as engine:
        assert engine.runner is not None
        logger.info(
            "%s runs tasks from %s, up to %d at once, as %s; stop it with Ctrl-C or SIGTERM",
            name,
            kernel.engine,
            settings.concurrency,
            engine.runner.name,
        )
        await stopped.wait()
        if running := len(engine.runner.runs):
            logger.info("stopping: waiting up to %g s for %d running task(s)", settings.drain_seconds, running)
    logger.info("stopped")
