"""`keelbolt worker`: runs tasks in this process, beside any number of others on the same storage."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.engine import opened, policies_of, retain_option, storage_option
from keelbolt.cli.loading import load_worker
from keelbolt.observability.logs import log_to_stderr

if TYPE_CHECKING:
    from keelbolt.data.retention import Policy
    from keelbolt.tasks.settings import TaskSettings
    from keelbolt.tasks.worker import AnyWorker

logger = logging.getLogger("keelbolt.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@click.command()
@click.argument("worker", metavar="MODULE:WORKER")
@storage_option
@click.option("--concurrency", type=int, help="How many tasks run at once in this process.  [default: 100]")
@click.option(
    "--lease",
    "lease_seconds",
    type=float,
    metavar="SECONDS",
    help="A process silent for so long is dead.  [default: 15]",
)
@click.option("--drain-seconds", type=float, metavar="SECONDS", help="How long running tasks may go on.  [default: 10]")
@click.option(
    "--double-text",
    type=click.Choice(["enqueue", "reject", "interrupt"]),
    help="What a message to a running task does.  [default: enqueue]",
)
@retain_option
@click.option("--json", "json_output", is_flag=True, help="Log JSON, a line each, for programs.")
def worker(worker: str, url: str, retain: tuple[str, ...], json_output: bool, **settings: Any) -> None:
    """Run the tasks of a storage with this worker, until SIGTERM or Ctrl-C.

    MODULE:WORKER names a Worker, a class of it or an async function; modules are also looked for in the current
    directory. Start as many processes as you like, on as many machines as reach the storage: each task is run by one of
    them, and when that one dies, by another.

    At the end nothing new is begun; what still runs after --drain-seconds is handed over to the other processes. A
    second signal ends it at once, which loses nothing either. Options not given are taken from the environment:
    KEELBOLT_CONCURRENCY, KEELBOLT_LEASE_SECONDS, KEELBOLT_DRAIN_SECONDS, KEELBOLT_DOUBLE_TEXT and so on.

    \b
    Example:
      keelbolt worker agent:Echo --storage sqlite:///agent.db --concurrency 10
    """
    from keelbolt.tasks.settings import TaskSettings

    chosen = TaskSettings.of(**settings)
    retention = policies_of(retain)
    found = load_worker(worker)
    log_to_stderr(as_json=json_output)
    asyncio.run(_work(worker, found, url, chosen, retention))


async def _work(name: str, worker: AnyWorker, url: str, settings: TaskSettings, retention: list[Policy]) -> None:
    from keelbolt.tasks.engine import TaskEngine

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        stopped.set()
        for each in SIGNALS:  # the next one has its usual effect
            loop.remove_signal_handler(each)

    for each in SIGNALS:
        loop.add_signal_handler(each, stop)
    kernel = await opened(url, create=True)
    async with kernel, TaskEngine(kernel, worker, settings=settings, retention=retention) as engine:
        assert engine.runner is not None
        logger.info(
            "%s takes tasks from %s, up to %d at once, as %s; stop it with Ctrl-C or SIGTERM",
            name,
            kernel.engine,
            settings.concurrency,
            engine.runner.name,
        )
        await stopped.wait()
        if running := len(engine.runner.runs):
            logger.info("stopping: %d task(s) have %g s to end", running, settings.drain_seconds)
    logger.info("stopped")
