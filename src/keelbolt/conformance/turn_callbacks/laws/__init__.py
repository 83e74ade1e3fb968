"""The laws of the turn callbacks, one module for each part of the contract."""
