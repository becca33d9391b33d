"""For tests of functions with effects: `prove` runs them with a fault at each step, without a cluster. Besides a store
in memory. Messages, and fixtures of a cluster, are in `oncelog.testing`.

PYTEST_DONT_REWRITE: pytest would warn where `conftest.py` imports it.
"""

from oncelog_effects.testing.memory_effects import MemoryEffects
from oncelog_effects.testing.proving import Proof, ProofFailed, prove, prove_async

__all__ = ["MemoryEffects", "Proof", "ProofFailed", "prove", "prove_async"]
