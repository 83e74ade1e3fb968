"""The kernel: records, logs, work and blobs, and one atomic commit over all of them."""
