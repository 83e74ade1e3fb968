"""Copies of whole stores, between any two engines, and backups in one file.

async with open_storage("sqlite:///agent.db") as source, open_storage("postgresql://…") as destination:
    print(await copy_storage(source, destination))
"""

from __future__ import annotations

import time
from dataclasses import replace

from holdfast.errors import NotTransferable
from holdfast.storage.contract import Kernel
from holdfast.storage.front import Front
from holdfast.storage.transfer.copy import Copied, Progress, Tell, copy_once, say_nothing
from holdfast.storage.transfer.follow import copy_and_follow
from holdfast.storage.transfer.ports import Transfer

__all__ = ["Copied", "Progress", "Tell", "copy_storage", "transfer_of"]


async def copy_storage(
    source: Kernel,
    destination: Kernel,
    *,
    follow: bool = False,
    resume_source: bool = False,
    restart: bool = False,
    tell: Tell = say_nothing,
) -> Copied:
    """Copy everything, with its versions, seqs and fences, and compare both sides.

    Called again after an interruption, it goes on. With ``follow`` the source may be written meanwhile; it is paused
    for a moment at the end and then marked as moved, or goes on (``resume_source``). ``restart`` clears what an
    unfinished copy has left in the destination.
    """
    started = time.monotonic()
    one, other = transfer_of(source), transfer_of(destination)
    if one.place() == other.place():
        raise NotTransferable("source and destination are the same storage; choose another destination")
    if follow:
        copied = await copy_and_follow(one, other, restart=restart, resume_source=resume_source, tell=tell)
    else:
        copied = await copy_once(one, other, restart=restart, tell=tell)
    return replace(copied, seconds=time.monotonic() - started)


def transfer_of(kernel: Kernel) -> Transfer:
    """The whole store of an open kernel."""
    if not isinstance(kernel, Front):
        raise NotTransferable(f"a {type(kernel).__name__} can't be copied: it is not built on Front")
    return kernel.transfer()
