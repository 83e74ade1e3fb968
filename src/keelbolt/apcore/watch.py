"""Hot reload: adds, reloads and removes modules as the files of an extensions directory change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from keelbolt.apcore.discovery import complaints, importable
from keelbolt.apcore.library import load_metadata, resolve_entry_point, scan_extensions, validate_module

logger = logging.getLogger("keelbolt.apcore")

LOOK_SECONDS = 0.5

Stamp = tuple[int, int]  # modification time and size


class ExtensionsWatch:
    """Keeps a registry in sync with its directory, from its creation on.

    A file that can't be loaded is logged, and the previous module stays. The directory is polled instead of using
    file-system events: this works on every machine and in every container, without further packages. ``keeping`` keeps
    the current module served while it is replaced: a registry can't replace a module atomically.
    """

    def __init__(
        self, path: Path, registry: Any, keeping: Callable[[str], AbstractContextManager[None]] | None = None
    ) -> None:
        self._path = path
        self._registry = registry
        self._keeping = keeping or (lambda _: contextlib.nullcontext())
        self._known = self._stamps()
        self._missing: set[str] = set()  # at the last poll
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await asyncio.to_thread(self.look)
            except Exception:
                logger.exception("the extensions directory could not be scanned")

    def look(self) -> None:
        """Apply the changes since the last poll."""
        stamps = self._stamps()
        missing = self._known.keys() - stamps.keys()
        for module_id in missing:
            if module_id not in self._missing:  # some programs delete a file and write it again
                stamps[module_id] = self._known[module_id]
            elif self._registry.unregister(module_id):
                logger.info("module %s removed", module_id)
        self._missing = set(missing)
        for module_id, (file, stamp) in stamps.items():
            if module_id not in self._known or self._known[module_id][1] != stamp:
                self._load(module_id, file)
        self._known = stamps

    def _stamps(self) -> dict[str, tuple[Path, tuple[Stamp, ...]]]:
        """Return every module file, with the stamps of the file and its metadata."""
        with complaints("apcore.registry.scanner"):  # reported at start
            found = scan_extensions(self._path)
        stamps: dict[str, tuple[Path, tuple[Stamp, ...]]] = {}
        for each in found:
            files = (each.file_path, each.meta_path)
            with contextlib.suppress(OSError):  # deleted meanwhile: handled at the next poll
                written = tuple(_stamp(Path(file)) for file in files if file is not None)
                stamps.setdefault(each.canonical_id, (Path(each.file_path), written))
        return stamps

    def _load(self, module_id: str, file: Path) -> None:
        about = file.with_name(f"{file.stem}_meta.yaml")
        try:
            metadata = load_metadata(about) if about.exists() else {}
            module = _loaded(file, metadata)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's file may raise anything
            ends = "keeps its loaded version" if self._registry.has(module_id) else "is skipped"
            logger.warning("module %s %s: %s", module_id, ends, _why(error))
            return
        self._replace(module_id, module, metadata)

    def _replace(self, module_id: str, module: Any, metadata: dict[str, Any]) -> None:
        """Replace the module with this id; if the new one can't be registered, the old one stays.

        Calls find the old module until the new one is loaded; only then is the old one unloaded.
        """
        if not self._registry.has(module_id):
            try:
                self._registry.register(module_id, module, metadata=metadata)
            except Exception as error:  # noqa: BLE001 - a user's file may raise anything
                logger.warning("module %s is skipped: %s", module_id, _why(error))
            else:
                logger.info("module %s added", module_id)
            return
        before = self._registry.get(module_id)
        known = self._registry.get_module_metadata(module_id)
        state = _suspended(before)
        with self._keeping(module_id), _quiet(before):
            self._registry.unregister(module_id)
            try:
                self._registry.register(module_id, module, metadata=metadata)
            except Exception as error:  # noqa: BLE001 - as above
                logger.warning("module %s keeps its loaded version: %s", module_id, _why(error))
                self._registry.register(module_id, before, metadata=known)
                return
            if state is not None:
                _hook(module, "on_resume", state)
        _hook(before, "on_unload")
        logger.info("module %s reloaded", module_id)


@contextlib.contextmanager
def _quiet(module: Any) -> Iterator[None]:
    """Keep the registry from calling the hooks of a module that is still in use."""
    hidden: list[str] = []
    for name in ("on_load", "on_unload"):
        with contextlib.suppress(AttributeError, TypeError):  # an object without __dict__: its hooks are called
            if name not in vars(module):
                setattr(module, name, None)
                hidden.append(name)
    try:
        yield
    finally:
        for name in hidden:
            delattr(module, name)


def _hook(module: Any, name: str, *given: Any) -> None:
    hook = getattr(module, name, None)
    try:
        if callable(hook):
            hook(*given)
    except Exception:
        logger.exception("%s failed in %s", name, type(module).__name__)


def _loaded(file: Path, metadata: dict[str, Any]) -> Any:
    with contextlib.suppress(OSError, NotImplementedError):
        # Python reuses the compiled file as long as the source's mtime (in seconds) and size are the same.
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
    with importable():
        module = resolve_entry_point(file, meta=metadata)()
    if problems := validate_module(module):
        raise ValueError("; ".join(problems))
    return module


def _suspended(module: Any) -> Any:
    """Return the state that the module hands over to its replacement."""
    suspend = getattr(module, "on_suspend", None)
    return suspend() if callable(suspend) else None


def _stamp(file: Path) -> Stamp:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _why(error: BaseException) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {' '.join(str(cause).split())}"
