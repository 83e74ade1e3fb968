"""Progress of long work: bars with rates on a terminal, otherwise a plain line at intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keelbolt.cli.output import echo, size

if TYPE_CHECKING:
    from keelbolt.kernel.transfer.copy import CopyProgress, Tell

LINE_SECONDS = 2.0

_WORDS = {"copy": "copying", "verify": "verifying"}


@contextmanager
def work_progress(what: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items done: ``erasing: 1,200 records (600/s)``."""
    with _shown() as show:
        yield lambda done: show(what, done, 0, f" {unit}")


@contextmanager
def transfer_progress() -> Iterator[Tell]:
    """Yield a function to call with each Progress of a copy, a backup or a restore."""
    with _shown() as show:

        def tell(step: CopyProgress) -> None:
            passed = f", {size(step.bytes)} in all" if step.bytes else ""
            show(f"{_WORDS[step.phase]} {step.table}", step.done, step.total, passed)

        yield tell


Show = Callable[[str, int, int, str], None]
"""Shows progress: name, items done, total (0: unknown), and additional text."""


@contextmanager
def _shown() -> Iterator[Show]:
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines().show
        return
    from rich import progress

    bars = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.completed:,.0f}"),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    tasks: dict[str, progress.TaskID] = {}
    with bars:

        def show(name: str, done: int, total: int, _more: str) -> None:
            if not done and not total:
                return
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total or None, rate="")
            task = next(task for task in bars.tasks if task.id == tasks[name])
            rate = f"{task.speed:,.0f}/s" if task.speed else ""
            bars.update(tasks[name], completed=done, total=total or None, rate=rate)

        yield show


class Lines:
    """One line every LINE_SECONDS, for logs."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._done: dict[str, int] = {}

    def show(self, name: str, done: int, total: int, more: str) -> None:
        now = time.monotonic()
        if now - self._at < LINE_SECONDS:
            return
        rate = (done - self._done.get(name, 0)) / (now - self._at)
        self._at, self._done[name] = now, done
        of = f" of {total:,}" if total else ""
        echo(f"{name}: {done:,}{of} ({rate:,.0f}/s){more}", err=True)
