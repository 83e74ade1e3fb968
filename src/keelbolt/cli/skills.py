"""`keelbolt skills`: lists the skills that the modules of a directory would have."""

from __future__ import annotations

from typing import Any

import click

from keelbolt.cli.failure import FAILED, WrongConfiguration
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.serve_options import DEFAULT_EXTENSIONS
from keelbolt.errors import ExtensionsError


@click.command()
@click.option(
    "--extensions-dir",
    envvar=["KEELBOLT_EXTENSIONS_DIR", "EXTENSIONS_DIR"],
    default=DEFAULT_EXTENSIONS,
    show_default=True,
    metavar="DIR",
    help="The directory of the apcore modules.",
)
@as_json
def skills(extensions_dir: str, json_output: bool) -> None:
    """List the skills that `keelbolt serve --extensions-dir` would serve, and the problems of other modules.

    This command loads the modules: it executes their files. The exit code is 1 if there is a problem.

    \b
    Example:
      keelbolt skills --extensions-dir ./extensions
    """
    from keelbolt.apcore.catalog import SkillCatalog
    from keelbolt.apcore.discovery import load_extensions

    try:
        found = load_extensions(extensions_dir, tell=False)
    except ExtensionsError as error:
        raise WrongConfiguration(str(error)) from error
    modules = list(SkillCatalog(found.registry).modules.values())
    left_out = [
        f"{module_id}: no description; add one to the module"
        for module_id in found.registry.list()
        if module_id not in {module.id for module in modules}
    ]
    problems = [*found.problems, *left_out]
    if json_output:
        print_json({"skills": [_skill(module) for module in modules], "problems": problems})
    else:
        rows = [(module.id, module.skill.name, _about(module), module.skill.description) for module in modules]
        print_table(("skill", "name", "properties", "description"), rows)
        for problem in problems:
            echo(f"problem: {problem}", err=True)
    if problems:
        raise SystemExit(FAILED)


def _skill(module: Any) -> dict[str, Any]:
    found: dict[str, Any] = module.skill.model_dump(mode="json", exclude_none=True)
    return {**found, "streams": module.streams, "requiresApproval": module.requires_approval}


def _about(module: Any) -> str:
    words = {"streams": module.streams, "needs approval": module.requires_approval}
    return ", ".join(word for word, true in words.items() if true) or "-"
