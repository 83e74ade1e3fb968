"""The root command, which turns errors into one-line messages."""

from __future__ import annotations

import io
import sys
from typing import Any

import click

from keelbolt import __version__
from keelbolt.cli.agents import cancel, card, get, send, stream
from keelbolt.cli.conformance import conformance
from keelbolt.cli.data import data, erase, export_command, import_command, sweep
from keelbolt.cli.dead import dead
from keelbolt.cli.failure import FAILED, CommandFailure
from keelbolt.cli.modules import skills
from keelbolt.cli.serve import serve
from keelbolt.cli.state import state
from keelbolt.cli.storage import migrate, storage
from keelbolt.cli.tasks import tasks
from keelbolt.cli.turns import turns
from keelbolt.cli.webhooks import webhooks
from keelbolt.cli.worker import worker
from keelbolt.errors import KeelboltError

RENAMED = {"--url": "--storage", "--of": "--tenant", "--lease": "--lease-seconds", "--json": "--log-format"}
"""Options renamed before the first release: an error suggests the new name."""


class Root(click.Group):
    """A group that prints each KeelboltError and OSError of its commands as a Failure."""

    def main(self, *args: Any, **options: Any) -> Any:
        for output in (sys.stdout, sys.stderr):
            if isinstance(output, io.TextIOWrapper):  # a terminal without UTF-8 shows ? for other characters
                output.reconfigure(errors="replace")
        try:
            return super().main(*args, **options)
        except OSError as error:  # for example, the output is a file on a full disk
            place = f"{error.filename}: " if error.filename else ""
            CommandFailure(f"{place}{error.strerror or error}").show()
            sys.exit(FAILED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for number, text in enumerate(args, 1):
            if not text.isascii() and text.encode(errors="replace").decode() != text:
                words = f"argument {number} is not UTF-8; check the locale of the terminal, for example LC_ALL=C.UTF-8"
                raise click.UsageError(words, ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeelboltError as error:
            raise CommandFailure.of(error) from error
        except click.NoSuchOption as error:
            renamed = RENAMED.get(error.option_name, "")
            if error.ctx is None or not any(renamed in each.opts for each in error.ctx.command.params):
                raise
            words = f"No such option {error.option_name!r}. Did you mean {renamed!r}?"
            raise click.UsageError(words, error.ctx) from None


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="keelbolt", message="%(prog)s %(version)s")
def main() -> None:
    """Run durable A2A agents, and inspect and manage the data that they store.

    A storage is a URL: sqlite:///relative/path.db, sqlite:////absolute/path.db, postgresql://host/database,
    redis://host/0 or memory:

    \b
    Example:
      keelbolt serve agent:Echo --storage sqlite:///agent.db
      keelbolt stream http://localhost:8000 "Hello"
      keelbolt storage stats sqlite:///agent.db
    """


main.add_command(storage)
main.add_command(state)
main.add_command(migrate)
main.add_command(data)
main.add_command(erase)
main.add_command(export_command)
main.add_command(import_command)
main.add_command(sweep)
main.add_command(serve)
main.add_command(skills)
main.add_command(worker)
main.add_command(card)
main.add_command(send)
main.add_command(stream)
main.add_command(get)
main.add_command(cancel)
main.add_command(tasks)
main.add_command(dead)
main.add_command(webhooks)
main.add_command(turns)
main.add_command(conformance)
