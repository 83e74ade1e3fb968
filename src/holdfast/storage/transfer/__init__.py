"""How a whole store travels. What users call is in `holdfast.storage.copies`."""

from __future__ import annotations
