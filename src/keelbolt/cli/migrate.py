"""`keelbolt migrate`: migrates a storage to the schema of this version."""

from __future__ import annotations

import click

from keelbolt.cli.output import as_json, echo, print_json, print_table, progress


@click.command()
@click.argument("url")
@click.option("--dry-run", is_flag=True, help="Show the migrations without applying them.")
@click.option("--sql", is_flag=True, help="Show the SQL of each migration, too.")
@as_json
def migrate(url: str, dry_run: bool, sql: bool, json_output: bool) -> None:
    """Migrate a storage to the schema of this version.

    Migrations are numbered and applied in order, each exactly once. Programs apply them when they open a storage; run
    this command first to choose the time.

    \b
    Example:
      keelbolt migrate sqlite:///agent.db --dry-run --sql
    """
    from keelbolt.kernel import urls

    if dry_run:
        migrations = urls.pending_migrations(url)
    else:
        with progress("migrating"):
            migrations = urls.migrate(url)

    if json_output:
        listed = [
            {"number": each.number, "name": each.name, "checksum": each.checksum} | ({"sql": each.sql} if sql else {})
            for each in migrations
        ]
        print_json({"applied": not dry_run, "migrations": listed})
        return
    if not migrations:
        echo("nothing to do: the schema is up to date")
        return
    rows = [[str(each.number), each.name, each.checksum[:12]] for each in migrations]
    print_table([">number", "name", "checksum"], rows, title="would be applied" if dry_run else "applied")
    if sql:
        for each in migrations:
            echo(f"-- {each.number} {each.name}\n{each.sql.rstrip()}\n")
