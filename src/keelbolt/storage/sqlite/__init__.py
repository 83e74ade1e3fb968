"""The SQLite engine: one file, several processes, one writer thread each with group commit."""

from __future__ import annotations

from keelbolt.storage.sqlite.engine import SQLiteKernel

__all__ = ["SQLiteKernel"]
