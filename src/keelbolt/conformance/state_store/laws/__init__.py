"""The laws of the StateStore, one module for each capability."""
