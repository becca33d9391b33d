"""The test suite as a queue of parts: what `make test`, `make proofs` and `make test-changed` run.

`parts` says which folders are a part and which files are proofs, `queue` decides which part runs next, `running` runs
one as a process, `steady` repeats the suite beside a load.
"""
