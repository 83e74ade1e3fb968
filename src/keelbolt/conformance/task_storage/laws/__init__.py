"""The laws of task storages, one module for each part of the contract."""
