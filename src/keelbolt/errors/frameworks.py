"""What the adapters of other frameworks refuse, where the framework has no exception of its own."""

from __future__ import annotations

from keelbolt.errors.storage import StorageError


class CheckpointConflict(StorageError):
    """Another run has written to this LangGraph thread meanwhile; the checkpoint was not saved.

    ``parent`` is the checkpoint on which the refused one was built, ``head`` the last checkpoint of the thread.
    """

    def __init__(self, thread: str, namespace: str, *, parent: str | None, head: str | None, why: str) -> None:
        self.thread = thread
        self.namespace = namespace
        self.parent = parent
        self.head = head
        where = f"thread {thread!r}" + (f", namespace {namespace!r}" if namespace else "")
        super().__init__(
            f"{where}: a checkpoint built on {parent or 'an empty thread'} was not saved, because {why} (its last "
            f'checkpoint is {head or "none"}). Run the graph again, or allow branches with on_conflict="fork"'
        )
