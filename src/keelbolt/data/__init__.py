"""The life of data: every face declares what it keeps, and erasure works from these declarations.

async with open_storage("sqlite:///agent.db") as kernel:
    await erase(kernel, Subject(kind="session", id="session-1"))
"""

from __future__ import annotations

from keelbolt.data.erasing import Erased, erase, erase_target, resume_erasures
from keelbolt.data.families import (
    EVERYTHING,
    ByField,
    ByKey,
    ByScan,
    Face,
    Family,
    Reference,
    Subject,
    Target,
    faces,
)

__all__ = [
    "EVERYTHING",
    "ByField",
    "ByKey",
    "ByScan",
    "Erased",
    "Face",
    "Family",
    "Reference",
    "Subject",
    "Target",
    "erase",
    "erase_target",
    "faces",
    "resume_erasures",
]
