"""The SQLite engine: one file, several processes, one writer thread each with group commit."""

from __future__ import annotations

from keelbolt.kernel.sqlite.engine import SQLiteKernel

__all__ = ["SQLiteKernel"]
