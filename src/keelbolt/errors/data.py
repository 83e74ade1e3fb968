"""What erasing, exporting and importing refuse."""

from __future__ import annotations

from keelbolt.errors.base import KeelboltError


class DataError(KeelboltError):
    """Something is wrong with what was to be erased, exported or imported."""


class SubjectNotFound(DataError, LookupError):
    """Nothing is kept of this subject."""


class SubjectExists(DataError):
    """A subject of the export is stored already, with other content; nothing of it was changed."""


class BadExport(DataError, ValueError):
    """The file is no export, is damaged or cut, or is of a newer format."""


class SubjectInUse(DataError):
    """A worker or a process uses this subject; nothing was erased. Try again later, or erase it without if_idle."""

    retryable = True
