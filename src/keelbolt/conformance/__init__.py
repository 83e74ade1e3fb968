"""Laws of four contracts, as suites to run on your own implementation.

`kernel`, `task_storage`, `state_store` and `turn_callbacks` each have ``validate``, ``load``, ``all_laws`` and
``laws_as_markdown``, a module ``subject`` (the implementation to check) and a package ``laws``.
"""
