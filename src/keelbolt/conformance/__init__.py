"""Suites that anybody can run on their own engine (`storage`), `task_storage` or `state_store`."""
