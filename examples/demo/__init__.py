"""The agent that `make run` serves: every face of Keelbolt in one program.

    python -m examples.demo

| file | what it is |
|---|---|
| guide.py | plain skills: echo, count, write, deploy, work, … |
| modules.py | skills that are modules of an apcore registry |
| planner.py | a skill that is a turn runner: thoughts, a tool, a gate |
| steered.py | what a task hears while it works; "Kill its process" among it |
| agent.py | one worker, one card and one door for all of these |
| history.py | what there is to see before anybody has said a word |
| __main__.py | the server |
"""

from __future__ import annotations
