"""`holdfast conformance`: does somebody's own engine keep the laws?"""

from __future__ import annotations

import click


@click.group()
def conformance() -> None:
    """Check whether an implementation keeps the laws of its contract.

    \b
    Example:
      holdfast conformance storage my_package.engine:factory
    """
