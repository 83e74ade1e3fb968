"""Describes exceptions for operators: class, message and traceback, limited in length, with secrets masked."""

from __future__ import annotations

from traceback import TracebackException
from types import TracebackType

from keelbolt.observability.masking import masked

MESSAGE_CHARACTERS = 2_000
TRACEBACK_CHARACTERS = 16_000
LINE_CHARACTERS = 1_000
READ_CHARACTERS = 64_000  # length of the message that is searched for secrets


def described(error: BaseException, *, skip: str | None = None) -> dict[str, str]:
    """Return ``type``, ``message`` and ``traceback`` of an exception.

    The traceback leaves out its first frames that are in files below the folder ``skip``.
    """
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - an exception may have any __str__
        message = f"<str() of the exception raised {type(broken).__name__}>"
    lines = TracebackException(kind, error, _without_first(error.__traceback__, skip), compact=True).format()
    text = "".join(f"{_cut(line, LINE_CHARACTERS)}\n" for each in lines for line in each.rstrip("\n").split("\n"))
    return {
        "type": f"{module}{kind.__qualname__}",
        "message": _cut(masked(message[:READ_CHARACTERS]), MESSAGE_CHARACTERS),
        "traceback": _without_middle(masked(text)).rstrip("\n"),
    }


def _without_first(traceback: TracebackType | None, skip: str | None) -> TracebackType | None:
    """Return the traceback from the first frame outside of the folder on; all of it if there is none."""
    found = traceback
    while skip is not None and found is not None and found.tb_frame.f_code.co_filename.startswith(skip):
        found = found.tb_next
    return found if found is not None else traceback


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _without_middle(text: str) -> str:
    """Keep the beginning and the end, which holds the exception itself."""
    if len(text) <= TRACEBACK_CHARACTERS:
        return text
    half = TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
