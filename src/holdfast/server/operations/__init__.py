"""The operations API under /holdfast/v1/: what A2A has no word for, as JSON, for the explorer, the CLI and people."""

from __future__ import annotations

from holdfast.server.operations.api import OperationsApi

__all__ = ["OperationsApi"]
