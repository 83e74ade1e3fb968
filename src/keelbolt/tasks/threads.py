"""Blocking calls, each in its own thread.

The threads are daemons: a call that blocks forever can't be stopped, but does not keep the process alive. There are as
many threads as concurrent calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def in_thread(function: Callable[..., Any], *given: Any) -> Any:
    """Call this in a thread with the current context variables, and wait for it; its exception is raised here."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            found = context.run(function, *given)
        except StopIteration as error:  # a future can't hold it
            _tell(_fail, RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:  # noqa: BLE001 - the caller gets every exception
            _tell(_fail, error)
        else:
            _tell(_answer, found)

    def _answer(found: Any) -> None:
        if not result.done():  # otherwise the caller was canceled
            result.set_result(found)

    def _fail(error: BaseException) -> None:
        if not result.done():
            result.set_exception(error)

    def _tell(how: Callable[[Any], None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(how, what)

    threading.Thread(target=run, name=f"call of {getattr(function, '__qualname__', '')}", daemon=True).start()
    return await result
