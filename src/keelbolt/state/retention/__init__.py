"""How long a store keeps what it keeps. Nothing is removed unless it is asked for, except what has expired.

await store.sweep(StateRetention(events=days(30), max_updates=10_000))
"""
