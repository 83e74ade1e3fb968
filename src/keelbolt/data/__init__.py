"""Data lifecycle: faces declare the data they keep; erasure, retention, export and inspection use the declarations.

async with open_storage("sqlite:///agent.db") as kernel:
    await erase(kernel, Subject(kind="session", id="session-1"))
"""

from __future__ import annotations

from keelbolt.data.erasing import Erased, erase, erase_target, resume_erasures
from keelbolt.data.exporting import Exported, ExportProgress, export
from keelbolt.data.families import (
    EVERYTHING,
    ByAny,
    ByField,
    ByKey,
    ByScan,
    Face,
    Family,
    Reference,
    Subject,
    SubjectLocation,
    faces,
)
from keelbolt.data.importing import Imported, import_export
from keelbolt.data.inspection import Inspection

__all__ = [
    "EVERYTHING",
    "ByAny",
    "ByField",
    "ByKey",
    "ByScan",
    "Erased",
    "ExportProgress",
    "Exported",
    "Face",
    "Family",
    "Imported",
    "Inspection",
    "Reference",
    "Subject",
    "SubjectLocation",
    "erase",
    "erase_target",
    "export",
    "faces",
    "import_export",
    "resume_erasures",
]
