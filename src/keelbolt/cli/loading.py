"""Opens what an argument names: the storage at a URL, or the object of ``module:name``."""

from __future__ import annotations

import asyncio
import importlib
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from keelbolt.errors import InvalidValue, StorageMissing

if TYPE_CHECKING:
    from keelbolt.kernel.contract import Kernel
    from keelbolt.tasks.worker import AnyWorker

HOW = "use module:name, for example agent:Echo for Echo in agent.py"


def load_worker(reference: str) -> AnyWorker:
    """Return the Worker or async function of this reference; a class is instantiated. Raise InvalidValue."""
    from keelbolt.tasks.worker import Worker, handler_of

    found = load(reference)
    if isinstance(found, type) and issubclass(found, Worker):
        try:
            found = found()
        except Exception as error:
            raise InvalidValue(
                f"{reference}() failed: {type(error).__name__}: {error}; name an instance instead of the class"
            ) from error
    try:
        handler_of(found)
    except InvalidValue as error:
        raise InvalidValue(f"{reference} is not a worker: {error}") from None
    worker: AnyWorker = found
    return worker


def load(reference: str) -> Any:
    """Return the object of this reference. Raise InvalidValue."""
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise InvalidValue(f"{reference!r} is not a reference; {HOW}")
    found: Any = _module(module_name)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidValue(f"{module_name} has no {name}{_instead(found, part)}") from None
    return found


def _module(name: str) -> ModuleType:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise InvalidValue(f"no module {missing} in the current directory or installed; {HOW}") from None
        raise InvalidValue(f"{name} imports {missing}, which is not installed; install it") from None
    except Exception as error:
        raise InvalidValue(
            f"{name} could not be imported: {type(error).__name__}: {error}{_line(error, name)}"
        ) from error


def _instead(found: Any, part: str) -> str:
    names = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
    own = [
        name for name in names if getattr(getattr(found, name), "__module__", "") == getattr(found, "__name__", None)
    ]
    close = get_close_matches(part, names, n=3) or own[:5] or names[:5]
    return f"; it has {', '.join(close)}" if close else ""


def _line(error: Exception, module: str) -> str:
    """Return the line of the module that raised the error, without directory names."""
    if isinstance(error, SyntaxError):
        return ""  # the message includes it
    file, at, place = f"{module.rpartition('.')[2]}.py", error.__traceback__, ""
    while at is not None:
        if Path(at.tb_frame.f_code.co_filename).name == file:
            place = f" (line {at.tb_lineno} of {file})"
        at = at.tb_next
    return place


# -------------------------------------------------------------------------------------------------------------- storage


FIRST_MIGRATION = 1


async def opened(url: str, *, create: bool = False) -> Kernel:
    """Return the storage at this URL, which other processes may use too. ``create``: create it if it does not exist."""
    from keelbolt.kernel.urls import open_storage

    if url.partition(":")[0] == "memory":
        raise InvalidValue(
            "memory: can't be shared with other processes; use sqlite:///path, postgresql:// or redis://"
        )
    return open_storage(url) if create else await existing(url)


async def existing(url: str) -> Kernel:
    """Return the storage at this URL. Raise StorageMissing instead of creating it, as for a mistyped path."""
    from keelbolt.kernel.urls import open_storage, pending_migrations

    if any(migration.number == FIRST_MIGRATION for migration in await asyncio.to_thread(pending_migrations, url)):
        raise StorageMissing("no storage exists at this URL; check the path, or create it with `keelbolt migrate URL`")
    return open_storage(url)
