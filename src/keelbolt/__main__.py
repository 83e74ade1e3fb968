"""The `keelbolt` command, also as `python -m keelbolt`.

This file and `keelbolt/__init__.py` have no syntax that is newer than Python 3.8, so that an old Python gets as far as
the sentence below.
"""

from __future__ import annotations

import sys

OLDEST = (3, 11)


def main() -> None:
    """Run the command; a Python that is too old gets one sentence instead of a traceback."""
    if sys.version_info < OLDEST:
        sys.exit("Keelbolt needs Python 3.11 or newer; this is Python {}.{}.{}".format(*sys.version_info[:3]))
    try:
        from keelbolt.cli.main import main as command  # noqa: PLC0415 - its syntax needs Python 3.11
    except KeyboardInterrupt:  # later, click handles it
        sys.exit("Aborted!")
    command(prog_name="keelbolt")


if __name__ == "__main__":
    main()
