"""`holdfast conformance`: does somebody's own engine keep the laws?"""

from __future__ import annotations

import asyncio
import sys

import click

from holdfast.cli.output import as_json, print_json, progress


@click.group()
def conformance() -> None:
    """Check whether an implementation keeps the laws of its contract.

    \b
    Example:
      holdfast conformance storage my_package.engine:factory
    """


@conformance.command()
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--only", multiple=True, metavar="NAME", help="Check only this law or group; may be repeated.")
@as_json
def storage(factory: str, only: tuple[str, ...], json_output: bool) -> None:
    """Run every law of the kernel's contract on an engine of your own.

    MODULE:FACTORY names a function that answers an unopened kernel, or a Subject of holdfast.conformance.storage, which
    can say more. Modules are also looked for in the current directory. The exit code is 1 when a law is broken.

    \b
    Example:
      holdfast conformance storage holdfast.storage.memory:MemoryKernel --only records
    """
    from holdfast.conformance.storage import load, validate

    sys.path.insert(0, "")
    with progress("checking") as tell:
        report = asyncio.run(validate(load(factory), only=only, progress=lambda finding: tell(finding.law.name)))
    if json_output:
        print_json(report.to_dict())
    else:
        click.echo(str(report))
    if not report.ok:
        raise SystemExit(1)
