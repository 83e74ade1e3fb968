"""Checks the types of the programs in README.md, docs/ and examples/: `make lint` runs it.

The Python blocks of a page are one program, with the page's line numbers. mypy --strict reads the pages (the examples
are part of its ordinary run); basedpyright reads the pages and the examples.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MYPY = [
    "--config-file",
    str(ROOT / "pyproject.toml"),
    "--disable-error-code=no-redef",  # a later block of a page may redefine a name
    "--disable-error-code=untyped-decorator",  # apcore has no types
    "--disable-error-code=ignore-without-code",
]
# pyright's default checks. Its stricter modes report each value of a package without types.
PYRIGHT = {
    "typeCheckingMode": "standard",
    "pythonVersion": "3.11",
    "reportRedeclaration": False,  # a later block of a page may redefine a name
    "reportMissingImports": False,  # mypy reports misspelled imports
    "reportMissingModuleSource": False,
}
WITHOUT_TYPES = re.compile(r"^(?:from|import) (penguiflow(?:\.\w+)*)", re.MULTILINE)  # mypy infers Any there, too


def program(page: Path) -> str:
    """Return the Python code of a page; every line keeps its line number."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside = line.startswith("```python")
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


def programs(directory: Path) -> dict[str, str]:
    """Write the program of each page into the directory; return the names of the pages by module."""
    names: dict[str, str] = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = page.relative_to(ROOT).as_posix()
        text = program(page)
        if text.strip():
            module = name.removesuffix(".md").replace("/", "__").replace("-", "_") + ".py"
            (directory / module).write_text(text)
            names[module] = name
    return names


def configured(directory: Path) -> Path:
    """Write the configuration of basedpyright, and stubs of packages without types."""
    examples = ROOT / "examples"
    texts = [path.read_text() for path in (*directory.glob("*.py"), *examples.rglob("*.py"))]
    stubs = directory / "typings"
    for module in {name for text in texts for name in WITHOUT_TYPES.findall(text)}:
        stub = stubs.joinpath(*module.split("."), "__init__.pyi")
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n")
    config = directory / "pyrightconfig.json"
    paths = {
        "include": [str(directory), str(examples)],
        "exclude": [str(stubs)],
        "extraPaths": [str(ROOT / "src"), str(ROOT)],
        "stubPath": str(stubs),
    }
    config.write_text(json.dumps({**PYRIGHT, **paths}))
    return config


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="keelbolt-types-") as temporary:
        directory = Path(temporary)
        names = programs(directory)
        mypy = ["mypy", *MYPY, "--cache-dir", str(ROOT / ".mypy_cache" / "docs"), temporary]
        config = configured(directory)
        pyright = ["basedpyright", "--project", str(config), "--pythonpath", sys.executable]
        checks = [
            subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=temporary,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
            )
            for command in (mypy, pyright)
        ]
        output = "".join(check.communicate()[0] for check in checks)
    for module, name in names.items():
        output = output.replace(f"{temporary}/{module}", name).replace(module, name)
    print(output.strip())
    return max(check.returncode for check in checks)


if __name__ == "__main__":
    sys.exit(main())
