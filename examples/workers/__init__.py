"""Five workers, each a whole program: `python -m examples.workers.NAME STORAGE PORT`.

Each survives kill -9 while it works: tests/integration/test_workers.py kills it.
"""
