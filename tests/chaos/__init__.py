"""The chaos machine: all faces on one store, processes that die, and a checker for every promise.

    python -m tests.chaos --engine sqlite --minutes 2 --seed 1

A *campaign* starts agents, clients and users of the StateStore on one store. A *nemesis* draws faults from a seed.
Every process writes its requests and responses to its own *history*. After the faults, when the store is quiet, the
*checker* compares the histories with the store, one function per promise. None of this code is part of the product.
"""
