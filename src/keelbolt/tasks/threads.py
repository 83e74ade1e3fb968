"""Blocking calls, each in a thread of its own.

Such a thread doesn't keep the process alive: one that blocks for ever can't be stopped, but it can be left behind.
There are as many as calls run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def in_thread(function: Callable[..., Any], *given: Any) -> Any:
    """Call this in a thread, with the context variables of now, and wait for it; what it raises is raised here."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            found = context.run(function, *given)
        except StopIteration as error:  # no future can hold it
            _tell(_fail, RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:  # noqa: BLE001 - whoever waits gets whatever it is
            _tell(_fail, error)
        else:
            _tell(_answer, found)

    def _answer(found: Any) -> None:
        if not told.done():  # nobody waits any more
            told.set_result(found)

    def _fail(error: BaseException) -> None:
        if not told.done():
            told.set_exception(error)

    def _tell(how: Callable[[Any], None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(how, what)

    threading.Thread(target=run, name=f"call of {getattr(function, '__qualname__', '')}", daemon=True).start()
    return await told
