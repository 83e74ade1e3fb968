"""`python -m keelbolt` is the `keelbolt` command."""

from __future__ import annotations

from keelbolt.cli.main import main

if __name__ == "__main__":
    main(prog_name="keelbolt")
