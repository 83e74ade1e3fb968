"""Loads an extensions directory as a registry, collects the problems found in it, and reloads changes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from keelbolt.apcore.library import (
    BindingLoader,
    Config,
    ModuleError,
    ModuleLoadError,
    Registry,
    entry_point,
    load_metadata,
    resolve_entry_point,
    scan_extensions,
    validate_module,
)
from keelbolt.errors import ExtensionsBroken, ExtensionsNotFound, ExtensionsUnreadable, NoModulesFound

logger = logging.getLogger("keelbolt.apcore")

BINDINGS = "*.binding.yaml"
SUMMARY = "No modules "  # prefix of apcore's summary line, which is not a problem of one module


@dataclass(frozen=True, slots=True)
class Extensions:
    """The modules of a directory, and a line for each module that could not be loaded."""

    path: Path
    registry: Any
    config: Any
    problems: tuple[str, ...]


def load_extensions(given: str | os.PathLike[str], *, tell: bool = True) -> Extensions:
    """Load every module below a directory; its files are executed.

    Raise ExtensionsNotFound, ExtensionsUnreadable, NoModulesFound if no module could be loaded, and ExtensionsBroken
    if the directory can't be loaded at all. Single modules that can't be loaded are left out and reported in
    ``problems``, and in the log if ``tell``.
    """
    path = Path(given)
    _check(path, os.fspath(given))
    with complaints() as problems:
        problems.extend(_unreadable(path))
        try:
            config = Config.load()
        except ModuleError as error:
            raise ExtensionsBroken(f"apcore's configuration can't be read: {error.message}") from error
        try:
            registry = Registry(config=config, extensions_dir=str(path))
            with importable():
                registry.discover()
            problems.extend(_load_bindings(path, registry, config))
        except ModuleError as error:
            raise ExtensionsBroken(f"The modules in {path} can't be loaded: {error.message}") from error
        except SystemExit as error:
            raise ExtensionsBroken(f"A module in {path} exits the program when it is loaded{_place(error)}") from None
    root = f"{path.resolve()}{os.sep}"
    problems = [problem.replace(root, "") for problem in problems]
    for problem in problems if tell else ():
        logger.warning("%s", problem)
    if not registry.list():
        raise NoModulesFound(os.fspath(given), problems)
    return Extensions(path, registry, config, tuple(problems))


def _load_bindings(path: Path, registry: Any, config: Any) -> Iterator[str]:
    """Register the modules of ``*.binding.yaml`` below the directory; yield a line for each file that is left out.

    Targets are imported from ``sys.path`` and the current directory.
    """
    files = sorted(path.rglob(BINDINGS))
    if files and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    for file in files:
        try:
            BindingLoader().load_bindings(str(file), registry, config)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - importing a target may raise anything
            text = error.message if isinstance(error, ModuleError) else f"{type(error).__name__}: {error}"
            yield f"{file.relative_to(path)}: {' '.join(text.split())}"


@contextmanager
def importable() -> Iterator[None]:
    """Make apcore register the files that it loads in ``sys.modules``.

    apcore executes a file without registering it. String annotations (``from __future__ import annotations``) then
    can't be resolved: dataclasses fail, and pydantic models stay undefined.
    """
    before = entry_point._import_module_from_file  # noqa: SLF001 - apcore has no public name for it

    def load(file_path: Path, pre_approval_hook: Any = None) -> ModuleType:
        name = f"apcore_ext_{file_path.stem}_{hashlib.sha256(os.fsencode(file_path.resolve())).hexdigest()[:8]}"
        spec = spec_from_file_location(name, file_path)
        if pre_approval_hook is not None or spec is None or spec.loader is None:
            found: ModuleType = before(file_path, pre_approval_hook=pre_approval_hook)
            return found
        module = module_from_spec(spec)
        replaced = sys.modules.get(name)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            if replaced is None:
                del sys.modules[name]
            else:
                sys.modules[name] = replaced
            if isinstance(error, Exception):
                raise ModuleLoadError(module_id=str(file_path), reason=f"Failed to import module: {error}") from error
            raise
        return module

    entry_point._import_module_from_file = load  # noqa: SLF001
    try:
        yield
    finally:
        entry_point._import_module_from_file = before  # noqa: SLF001


def _check(path: Path, given: str) -> None:
    try:
        if not path.is_dir():
            raise ExtensionsNotFound(given)
        with os.scandir(path):
            pass
    except PermissionError:
        raise ExtensionsUnreadable(given) from None


def _unreadable(path: Path) -> Iterator[str]:
    """Yield a line for each file and directory that this user can't read; apcore skips them silently."""
    for folder, folders, files in os.walk(path):
        for name in folders:
            if not os.access(Path(folder, name), os.R_OK | os.X_OK):
                yield f"{Path(folder, name).relative_to(path)}: can't read this directory: permission denied"
        for name in files:
            if name.endswith(".py") and not os.access(Path(folder, name), os.R_OK):
                yield f"{Path(folder, name).relative_to(path)}: can't read this file: permission denied"


@contextmanager
def complaints(who: str = "apcore.registry") -> Iterator[list[str]]:
    """Collect apcore's log messages about modules that it leaves out; apcore reports them only in its log."""
    found: list[str] = []
    apcore = logging.getLogger(who)
    ear = _Ear(found)
    passed_on = apcore.propagate
    apcore.addHandler(ear)
    apcore.propagate = False
    try:
        yield found
    finally:
        apcore.propagate = passed_on
        apcore.removeHandler(ear)


class _Ear(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if not str(record.msg).startswith(SUMMARY):
            self._found.append(_line(record))


def _line(record: logging.LogRecord) -> str:
    """Return one problem as a line; if an exception of the module caused it, with its type and line number."""
    given = record.args if isinstance(record.args, tuple) else ()
    error = next((each for each in given if isinstance(each, Exception)), None)
    cause = error.__cause__ if error is not None else None
    if cause is None:
        return " ".join(record.getMessage().split())
    return f"{given[0]}: {type(cause).__name__}: {' '.join(str(cause).split())}{_place(cause)}"


def _place(error: BaseException) -> str:
    """Return the line and file name of the error, without directories."""
    if isinstance(error, SyntaxError):
        return ""  # its message already has the line
    at, place = error.__traceback__, ""
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_name == "<module>":
            place = f" (line {at.tb_lineno} of {Path(code.co_filename).name})"
        at = at.tb_next
    return place


# ----------------------------------------------------------------------------------------------------------- hot reload


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
        state = _hook(before, "on_suspend")  # what the module hands over to its replacement
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


def _hook(module: Any, name: str, *given: Any) -> Any:
    """Return the result of a module's hook; None if it has none or the hook fails."""
    hook = getattr(module, name, None)
    try:
        return hook(*given) if callable(hook) else None
    except Exception:
        logger.exception("%s failed in %s", name, type(module).__name__)
        return None


def _loaded(file: Path, metadata: dict[str, Any]) -> Any:
    with contextlib.suppress(OSError, NotImplementedError):
        # Python reuses the compiled file as long as the source's mtime (in seconds) and size are the same.
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
    with importable():
        module = resolve_entry_point(file, meta=metadata)()
    if problems := validate_module(module):
        raise ValueError("; ".join(problems))
    return module


def _stamp(file: Path) -> Stamp:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _why(error: BaseException) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {' '.join(str(cause).split())}"
