"""Copies and backups of whole stores. The public functions are in `keelbolt.storage.copies`."""

from __future__ import annotations
