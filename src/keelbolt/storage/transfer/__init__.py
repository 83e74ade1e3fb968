"""How a whole store travels. What users call is in `keelbolt.storage.copies`."""

from __future__ import annotations
