"""What erasing, exporting and importing refuse."""

from __future__ import annotations

from keelbolt.errors.base import KeelboltError


class DataError(KeelboltError):
    """Data could not be erased, exported or imported."""


class SubjectNotFound(DataError, LookupError):
    """No data is stored for this subject."""


class SubjectExists(DataError):
    """A subject of the export is already stored with other content, which was not changed."""


class BadExport(DataError, ValueError):
    """The file is not an export, is damaged or truncated, or has a newer format."""


class SubjectInUse(DataError):
    """A worker or a process uses this subject; nothing was erased. Try again later, or erase it without if_idle."""

    retryable = True
