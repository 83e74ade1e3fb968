"""What erasing, exporting and importing refuse."""

from __future__ import annotations

from keelbolt.errors.base import KeelboltError


class DataError(KeelboltError):
    """Something is wrong with what was to be erased, exported or imported."""


class SubjectNotFound(DataError, LookupError):
    """Nothing is kept of this subject."""


class SubjectInUse(DataError):
    """A worker or a process uses this subject; nothing was erased. Try again later, or erase it without if_idle."""

    retryable = True
