"""Hides secrets in texts that operators read: messages of exceptions, tracebacks, log lines."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

MASK = "•••"
_NAMES = (
    "token|secret|passw(?:or)?d|passphrase|authorization|credential|api[_-]?key|private[_-]?key|access[_-]?key|cookie"
)
SECRET_NAME = re.compile(rf"(?:{_NAMES})s?$", re.IGNORECASE)
"""Names of values that are secrets."""
_SECRET_VARIABLE = re.compile(rf"(?:{_NAMES}|key)s?$", re.IGNORECASE)
_VARIABLE_CHARACTERS = 8  # shorter values also occur in ordinary text
_NAMED = re.compile(
    rf"""(?<![\w-])(["']?[\w-]*(?:{_NAMES})s?["']?\s*[=:]\s*)"""
    r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?:bearer|basic)\s+[^\s"',;]+|[^\s"',;&)}\]]+)""",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"(://[^\s/:@]*):[^\s/@]+@")
_KNOWN_FORMS = re.compile(
    r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # a JSON Web Token
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}"
    r"|\bgh[opsur]_\w{20,}"
    r"|\bxox[abprs]-[\w-]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|(?<=\bbearer )[\w.~+/=-]{8,}",
    re.IGNORECASE,
)


def masked(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the text with secrets masked: by name, by format, or because they are values of secret variables."""
    for name, value in environment.items():
        if len(value) >= _VARIABLE_CHARACTERS and value in text and _SECRET_VARIABLE.search(name):
            text = text.replace(value, MASK)
    text = _PASSWORD_IN_URL.sub(rf"\1:{MASK}@", text)
    text = _NAMED.sub(_hide, text)
    return _KNOWN_FORMS.sub(MASK, text)


def _hide(found: re.Match[str]) -> str:
    name, value = found.groups()
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{quote}{MASK}{quote}"
