"""Tools that try a cluster: the demonstration, the benchmarks, and faults under load. A distribution of its own.

They share one launcher of a standalone cluster (`cluster`), one record of acknowledged messages (`acknowledgements`),
one interface of fault injectors (`faults`) and one verdict on a log (`verdict`).
"""
