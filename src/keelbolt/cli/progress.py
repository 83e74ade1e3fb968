"""Shows how far a copy is: bars with rates on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from keelbolt.cli.output import echo, size
from keelbolt.storage.transfer.copy import Progress, Tell

LINE_SECONDS = 2.0

_WORDS = {"copy": "copying", "verify": "verifying"}


@contextmanager
def transfer_progress() -> Iterator[Tell]:
    """What to call with each Progress."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines().tell
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
    tasks: dict[tuple[str, str], progress.TaskID] = {}
    with bars:

        def tell(step: Progress) -> None:
            if not step.done and not step.total:
                return
            key = (step.phase, step.table)
            if key not in tasks:
                words = f"{_WORDS[step.phase]} {step.table}"
                tasks[key] = bars.add_task(words, total=step.total or None, rate="")
            task = next(task for task in bars.tasks if task.id == tasks[key])
            rate = f"{task.speed:,.0f}/s" if task.speed else ""
            bars.update(tasks[key], completed=step.done, total=step.total or None, rate=rate)

        yield tell


class Lines:
    """One line every LINE_SECONDS, for logs."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._done: dict[tuple[str, str], int] = {}

    def tell(self, step: Progress) -> None:
        now = time.monotonic()
        if now - self._at < LINE_SECONDS:
            return
        key = (step.phase, step.table)
        rate = (step.done - self._done.get(key, 0)) / (now - self._at)
        self._at, self._done[key] = now, step.done
        of = f" of {step.total:,}" if step.total else ""
        passed = f", {size(step.bytes)} in all" if step.bytes else ""
        echo(f"{_WORDS[step.phase]} {step.table}: {step.done:,}{of} ({rate:,.0f}/s{passed})", err=True)
