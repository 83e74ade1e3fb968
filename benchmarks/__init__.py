"""Benchmarks, run from a checkout: ``python -m benchmarks NAME``. Targets are ratios of measurements of one run."""
