"""Five workers, each a whole program: `python -m examples.workers.NAME STORAGE PORT`.

Each survives kill -9 during a task; tests/integration/test_workers.py tests it.
"""
