"""Previews: the predicted effect of a call, shown with its approval request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from pydantic_core import to_json, to_jsonable_python

from keelbolt.apcore.errors_map import sanitized
from keelbolt.apcore.inputs import Input
from keelbolt.tasks.threads import in_thread

logger = logging.getLogger("keelbolt.apcore")

PREVIEW_SECONDS = 5.0
MAX_CHANGES = 20
MAX_VALUE_BYTES = 2000  # of each before, after and custom value of a change
_RAISED = ("preflight() raised", "preview() raised")


async def preview_of(executor: Any, module_id: str, inputs: Input, context: Any) -> dict[str, Any] | None:
    """Return the prediction of ``executor.validate()``: {"changes": […], "warnings": […]}; None if it predicts
    nothing.

    A preview is optional. If it fails or takes too long, this is logged, and the approval is requested without it.
    """
    validate = getattr(executor, "validate", None)
    if not callable(validate):
        return None
    try:
        async with asyncio.timeout(PREVIEW_SECONDS):
            found = await in_thread(asyncio.run, _validated(validate, module_id, inputs, context))
        changes = [_change(change) for change in found.predicted_changes[:MAX_CHANGES]]
        checks = [check for check in found.checks if check.warnings]
    except Exception as error:  # noqa: BLE001 - a module may raise anything
        logger.warning("module %s: the preview for its approval failed: %s: %s", module_id, type(error).__name__, error)
        return None
    warnings: list[str] = []
    for warning in [str(each) for check in checks for each in check.warnings]:
        if warning.startswith(_RAISED):  # an exception's text belongs in the log only
            logger.warning("module %s: the preview for its approval failed: %s", module_id, warning)
        else:
            warnings.append(sanitized(warning))
    preview = {"changes": changes, "warnings": warnings[:MAX_CHANGES]}
    return {name: value for name, value in preview.items() if value} or None


async def _validated(validate: Callable[..., Any], *given: Any) -> Any:
    """Validate within a running loop: apcore then closes the loop that it creates. Otherwise it leaves one open."""
    return validate(*given)


def _change(change: Any) -> dict[str, Any]:
    """Return a predicted change as JSON, without values that are too large to show."""
    plain = change.model_dump(exclude_none=True)
    found = {name: sanitized(str(plain.pop(name))) for name in ("action", "target", "summary")}
    for name, value in plain.items():
        shown = to_jsonable_python(value, fallback=str, inf_nan_mode="strings")
        found[name] = shown if len(to_json(shown)) <= MAX_VALUE_BYTES else "too large to show"
    return found
