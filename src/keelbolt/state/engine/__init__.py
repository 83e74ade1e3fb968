"""The storage under a StateStore: its kernel and thread, the queue of writes, and the spool for outages."""
