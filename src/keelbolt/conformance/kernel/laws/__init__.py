"""The laws of the kernel, one module for each part of the contract."""
