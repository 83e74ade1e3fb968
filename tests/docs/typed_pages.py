"""Checks the types of the programs in README.md and docs/ with mypy --strict: `make lint` runs it.

The Python blocks of a page are one program, with the page's line numbers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Pages whose programs have untyped functions or loose unions. A page that is typed is removed from here.
UNTYPED = {
    "docs/howto/a2a-sdk.md",
    "docs/howto/call-an-agent.md",
    "docs/howto/move-between-engines.md",
    "docs/howto/request-data.md",
    "docs/howto/sessions.md",
    "docs/howto/state-artifacts-memory.md",
    "docs/howto/turn-agent.md",
    "docs/howto/turn-storage.md",
    "docs/howto/turns.md",
    "docs/howto/write-an-engine.md",
    "docs/reference/conformance.md",
    "docs/reference/protocol.md",
    "docs/reference/state-store-laws.md",
    "docs/reference/streams.md",
    "docs/reference/task-storage.md",
    "docs/tutorial/first-agent.md",
    "docs/tutorial/kernel.md",
}
OPTIONS = [
    "--config-file",
    str(ROOT / "pyproject.toml"),
    "--disable-error-code=no-redef",  # a later block of a page may define a name anew
    "--disable-error-code=untyped-decorator",  # apcore has no types
    "--disable-error-code=ignore-without-code",
]


def program(page: Path) -> str:
    """The Python of a page; every line stands where it stands in the page."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside = line.startswith("```python")
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


def main() -> int:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="keelbolt-types-") as directory:
        for page in pages:
            name = page.relative_to(ROOT).as_posix()
            text = program(page)
            if name in UNTYPED or not text.strip():
                continue
            module = name.removesuffix(".md").replace("/", "__").replace("-", "_") + ".py"
            (Path(directory) / module).write_text(text)
            names[module] = name
        command = [sys.executable, "-m", "mypy", *OPTIONS, "--cache-dir", str(ROOT / ".mypy_cache" / "docs"), directory]
        ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    output = ran.stdout + ran.stderr
    for module, name in names.items():
        output = output.replace(f"{directory}/{module}", name).replace(module, name)
    print(output.strip())
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
