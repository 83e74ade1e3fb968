"""The SQLite engine obeys every law, in both durability classes."""

from __future__ import annotations

from keelbolt.conformance.pytest import storage_laws
from keelbolt.conformance.storage import ByUrl, Subject

URL = "sqlite:///{directory}/laws.db"

test_durable = storage_laws(Subject("SQLite, durable", ByUrl(URL), persistent=True, shared=True, prompt=True))
test_relaxed = storage_laws(
    Subject("SQLite, relaxed", ByUrl(URL, "relaxed"), persistent=True, shared=True, prompt=True)
)
