"""Forks the processes of a campaign, so that a killed one is replaced within milliseconds.

    python -m tests.chaos.zygote CLOCK

A line on stdin is a name of `PROGRAMS` and its arguments, as a list in JSON; the reply is the pid. It imports
all modules once, and never starts an event loop or a thread. ``CLOCK`` is the file of the wall clock.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import logging
import os
import random
import signal
import sys
from typing import Any

from tests.chaos import wall_clock

PR_SET_PDEATHSIG = 1
PROGRAMS = {
    "agent": "agent:serve",
    "client": "client:run",
    "state": "state_user:run",
    "framework": "framework_user:run",
    "kernel": "kernel_user:run",
    "sweeper": "sweeper:run",
}


def _load(program: str) -> Any:
    module, _, function = program.partition(":")
    return getattr(importlib.import_module(f"tests.chaos.{module}"), function)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    logging.disable(logging.CRITICAL)  # faults are intended
    wall_clock.follow(sys.argv[1])
    programs = {name: _load(program) for name, program in PROGRAMS.items()}
    if "CHAOS_SOAK" in os.environ:
        _load("soak:shorten_lifetimes")()
    _load("bugs:plant")(os.environ.get("CHAOS_BUG", ""))
    libc = ctypes.CDLL(None)
    gc.collect()
    gc.freeze()  # children share these pages
    print("ready", flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # none outlives the zygote, nor the zygote the campaign
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            quiet = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2) if "CHAOS_LOUD" not in os.environ else (0, 1):
                os.dup2(quiet, number)
            random.seed(os.getpid())
            try:
                programs[name](*arguments)
            finally:
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
