"""Benchmarks, run from a checkout: ``python -m benchmarks NAME``. Targets are ratios of things measured in one run."""
