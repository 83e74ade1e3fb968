"""The operations API under /keelbolt/v1/: what A2A has no word for, as JSON, for the explorer, the CLI and people."""

from __future__ import annotations

from keelbolt.operations.api import OperationsApi

__all__ = ["OperationsApi"]
