"""apcore itself. Importing this module raises MissingExtra when it is not installed."""

from __future__ import annotations

from keelbolt.errors import MissingExtra

try:
    from apcore import ACL, Config, Context, Executor, Identity, Registry
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
        ModuleTimeoutError,
        SchemaValidationError,
    )
    from apcore.pipeline import BaseStep
    from apcore.registry import load_metadata, resolve_entry_point, scan_extensions, validate_module
    from apcore.streaming import StreamingModule
    from apcore.trace_context import TraceContext, TraceParent
except ImportError as error:
    raise MissingExtra("apcore", "apcore") from error

__all__ = [
    "ACL",
    "ApprovalDeniedError",
    "ApprovalPendingError",
    "ApprovalRequest",
    "ApprovalResult",
    "ApprovalTimeoutError",
    "BaseStep",
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
    "ModuleTimeoutError",
    "Registry",
    "SchemaValidationError",
    "StreamingModule",
    "TraceContext",
    "TraceParent",
    "apcore_errors",
    "load_metadata",
    "resolve_entry_point",
    "scan_extensions",
    "validate_module",
]
