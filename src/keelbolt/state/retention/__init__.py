"""Retention of a store's data. Without a policy, only expired data is removed.

await store.sweep(StateRetention(events=days(30), max_updates=10_000))
"""
