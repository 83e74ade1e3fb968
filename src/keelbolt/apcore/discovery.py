"""An extensions directory as a registry, and what is wrong with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keelbolt.apcore.library import Config, ModuleError, Registry
from keelbolt.errors import ExtensionsBroken, ExtensionsNotFound, ExtensionsUnreadable, NoModulesFound

logger = logging.getLogger("keelbolt.apcore")

SUMMARY = "No modules "  # how apcore ends a list of complaints


@dataclass(frozen=True, slots=True)
class Extensions:
    """The modules of a directory, and a line for each that could not be loaded."""

    path: Path
    registry: Any
    config: Any
    problems: tuple[str, ...]


def load_extensions(given: str | os.PathLike[str], *, tell: bool = True) -> Extensions:
    """Load every module below a directory; its files are executed.

    Raises ExtensionsNotFound, ExtensionsUnreadable, NoModulesFound when nothing is left to be served, and
    ExtensionsBroken when nothing can be made of it. Single modules that can't be loaded are left out and told: in the
    log (unless not ``tell``), and in ``problems``.
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
            registry.discover()
        except ModuleError as error:
            raise ExtensionsBroken(f"The modules in {path} can't be loaded: {error.message}") from error
        except SystemExit as error:
            raise ExtensionsBroken(f"A module in {path} ends the program when it is loaded{_place(error)}") from None
    root = f"{path.resolve()}{os.sep}"
    problems = [problem.replace(root, "") for problem in problems]
    for problem in problems if tell else ():
        logger.warning("%s", problem)
    if not registry.list():
        raise NoModulesFound(os.fspath(given), problems)
    return Extensions(path, registry, config, tuple(problems))


def _check(path: Path, given: str) -> None:
    try:
        if not path.is_dir():
            raise ExtensionsNotFound(given)
        with os.scandir(path):
            pass
    except PermissionError:
        raise ExtensionsUnreadable(given) from None


def _unreadable(path: Path) -> Iterator[str]:
    """Files and directories below that this user may not read; apcore passes over them."""
    for folder, folders, files in os.walk(path):
        for name in folders:
            if not os.access(Path(folder, name), os.R_OK | os.X_OK):
                yield f"{Path(folder, name).relative_to(path)}: this directory can't be read; its permissions forbid it"
        for name in files:
            if name.endswith(".py") and not os.access(Path(folder, name), os.R_OK):
                yield f"{Path(folder, name).relative_to(path)}: this file can't be read; its permissions forbid it"


@contextmanager
def complaints(who: str = "apcore.registry") -> Iterator[list[str]]:
    """What apcore says about modules that it leaves out: it does so in its log, and nowhere else."""
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
    """One complaint; where an error of the module's own is behind it, its kind and its line as well."""
    given = record.args if isinstance(record.args, tuple) else ()
    error = next((each for each in given if isinstance(each, Exception)), None)
    cause = error.__cause__ if error is not None else None
    if cause is None:
        return " ".join(record.getMessage().split())
    return f"{given[0]}: {type(cause).__name__}: {' '.join(str(cause).split())}{_place(cause)}"


def _place(error: BaseException) -> str:
    """Where the error came up, without anybody's directories."""
    if isinstance(error, SyntaxError):
        return ""  # it says so itself
    at, place = error.__traceback__, ""
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_name == "<module>":
            place = f" (line {at.tb_lineno} of {Path(code.co_filename).name})"
        at = at.tb_next
    return place
