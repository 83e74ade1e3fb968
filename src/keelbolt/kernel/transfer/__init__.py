"""Copies and backups of whole stores. The public functions are in `keelbolt.kernel.copies`."""

from __future__ import annotations
