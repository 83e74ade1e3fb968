"""Loads an extensions directory as a registry, and collects the problems found in it."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from keelbolt.apcore.library import BindingLoader, Config, ModuleError, ModuleLoadError, Registry, entry_point
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
