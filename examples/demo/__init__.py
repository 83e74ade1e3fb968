"""The agent that `make run` serves: every face of Keelbolt in one program.

    python -m examples.demo

| file | what it is |
|---|---|
| guide.py | plain skills: echo, count, write, deploy, work, … |
| modules.py | skills that are modules of an apcore registry |
| planner.py | a skill that is a turn runner: thoughts, a tool, a gate |
| steered.py | steering of a running task, including "Kill its process" |
| agent.py | one worker and one card for all of these |
| history.py | example tasks and a session, written before the first start |
| __main__.py | the server |
"""

from __future__ import annotations
