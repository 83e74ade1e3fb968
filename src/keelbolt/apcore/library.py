"""Imports of apcore. Importing this module raises MissingExtra if apcore is not installed."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from keelbolt.errors import MissingExtra, UnsupportedVersion

logger = logging.getLogger("keelbolt.apcore")

SERIES = (0, 32)  # of apcore that Keelbolt is tested with
SUPPORTED = ">=0.32,<0.33"


def check_version(found: str | None) -> None:
    """Raise UnsupportedVersion if apcore is too old; log a warning if it is newer than tested."""
    numbers = re.match(r"(\d+)\.(\d+)", found or "")
    series = (int(numbers[1]), int(numbers[2])) if numbers is not None else SERIES
    if series < SERIES:
        raise UnsupportedVersion("apcore", f"{found}", SUPPORTED)
    if series > SERIES:
        logger.warning("apcore %s is newer than the versions that Keelbolt is tested with (%s)", found, SUPPORTED)


def _installed() -> str | None:
    try:
        return version("apcore")
    except PackageNotFoundError:
        return None


check_version(_installed())
try:
    from apcore import ACL, BindingLoader, Config, Context, Executor, Identity, Registry, register_sys_modules
    from apcore import errors as apcore_errors
    from apcore.approval import ApprovalRequest, ApprovalResult
    from apcore.builtin_steps import BuiltinApprovalGate, BuiltinModuleLookup
    from apcore.cancel import CancelToken, ExecutionCancelledError
    from apcore.context import GovernanceProjection
    from apcore.errors import (
        ApprovalDeniedError,
        ApprovalPendingError,
        ApprovalTimeoutError,
        ModuleError,
        ModuleLoadError,
        ModuleTimeoutError,
        SchemaValidationError,
    )
    from apcore.pipeline import BaseStep
    from apcore.registry import entry_point, load_metadata, resolve_entry_point, scan_extensions, validate_module
    from apcore.streaming import StreamingModule
    from apcore.trace_context import TraceContext, TraceParent
except ImportError as error:
    if find_spec("apcore") is None:
        raise MissingExtra("apcore", "apcore") from error
    raise UnsupportedVersion("apcore", f"{_installed()} ({error})", SUPPORTED) from error

with suppress(apcore_errors.ConfigNamespaceDuplicateError):  # apcore-a2a may be imported in the same process
    Config.register_namespace("apcore-a2a", env_prefix="APCORE_A2A")

__all__ = [
    "ACL",
    "ApprovalDeniedError",
    "ApprovalPendingError",
    "ApprovalRequest",
    "ApprovalResult",
    "ApprovalTimeoutError",
    "BaseStep",
    "BindingLoader",
    "BuiltinApprovalGate",
    "BuiltinModuleLookup",
    "CancelToken",
    "Config",
    "Context",
    "ExecutionCancelledError",
    "Executor",
    "GovernanceProjection",
    "Identity",
    "ModuleError",
    "ModuleLoadError",
    "ModuleTimeoutError",
    "Registry",
    "SchemaValidationError",
    "StreamingModule",
    "TraceContext",
    "TraceParent",
    "apcore_errors",
    "entry_point",
    "load_metadata",
    "register_sys_modules",
    "resolve_entry_point",
    "scan_extensions",
    "validate_module",
]
