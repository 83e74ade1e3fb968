"""apcore itself. Importing this module raises MissingExtra when it is not installed."""

from __future__ import annotations

from contextlib import suppress

from keelbolt.errors import MissingExtra

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
    raise MissingExtra("apcore", "apcore") from error

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
