"""A Python worker of Spark: it runs many tasks, and after each one Spark collects all garbage of the process.

With the modules of this package loaded, such a collection takes 50 ms, several times as long as a small task. So what
exists before the first task is exempt from collection.
"""

import os

from oncelog.runtime.memory import tune_memory

#: ids of processes; a forked child is not its parent
_TUNED: set[int] = set()


def tune_worker() -> None:
    """Call it in a task, after all imports. Only the first call in a process does anything."""
    if os.getpid() not in _TUNED:
        _TUNED.add(os.getpid())
        tune_memory()
