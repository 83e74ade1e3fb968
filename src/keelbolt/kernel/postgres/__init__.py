"""The PostgreSQL engine: any number of processes on any number of machines, with group commit in each."""

from __future__ import annotations

from keelbolt.kernel.postgres.connection import TLS_OPTIONS
from keelbolt.kernel.postgres.engine import PostgresKernel

__all__ = ["TLS_OPTIONS", "PostgresKernel"]
