"""Finds the step of apcore's pipeline, and the module, that raised an error."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from keelbolt.apcore.library import BaseStep

GATE = "approval_gate"
INPUT = "input_validation"
OUTPUT = "output_validation"


class Origin(NamedTuple):
    """The name of the step, and the module that the pipeline ran."""

    step: str
    module_id: str


def origin_of(error: BaseException) -> Origin | None:
    """Return the innermost step in the error's traceback; None if no step raised the error.

    apcore's steps and modules raise the same errors, and a module may call another one: only the traceback
    distinguishes these cases.
    """
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        step = frame.f_locals.get("self")
        if isinstance(step, BaseStep):
            module_id = getattr(frame.f_locals.get("ctx"), "module_id", None)
            found = Origin(step.name, module_id if isinstance(module_id, str) else "")
    return found
