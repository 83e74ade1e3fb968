"""Numbered migrations: SQL files next to their engine, applied once, in order, and never changed afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from keelbolt.errors import SchemaMismatch, SchemaTooNew


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations_of(package: str) -> list[Migration]:
    """Return the migrations of a package, in order: files named 0001_what.sql."""
    found = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, file.read_text()))
    return sorted(found, key=lambda migration: migration.number)


def unapplied(known: Sequence[Migration], applied: Iterable[tuple[int, str]]) -> list[Migration]:
    """Return the known migrations that were not applied.

    Raise SchemaTooNew if the database has a newer schema, SchemaMismatch if an applied migration differs.
    """
    checksums = dict(applied)
    if checksums and max(checksums) > known[-1].number:
        raise SchemaTooNew(
            f"the database has schema {max(checksums)}, this program supports {known[-1].number}; upgrade "
            f"this program. "
            "Nothing was changed."
        )
    for migration in known:
        checksum = checksums.get(migration.number)
        if checksum is not None and checksum != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration.number} ({migration.name}) is not the one that was applied to this database; "
                "use the program version that made it"
            )
    return [migration for migration in known if migration.number not in checksums]


def queries_of(package: str, file: str = "queries.sql") -> dict[str, str]:
    """Return the named statements of a file. Blank lines separate them; a comment in the first line is the name."""
    queries = {}
    for block in resources.files(package).joinpath(file).read_text().split("\n\n"):
        lines = block.strip().splitlines()
        if not lines:
            continue
        name = lines[0].removeprefix("--").strip()
        sql = "\n".join(line for line in lines if not line.startswith("--")).rstrip().rstrip(";")
        if sql:
            queries[name] = sql
    return queries
