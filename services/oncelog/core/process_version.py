"""What the processes of a mixed cluster can do: the version that each process registers with.

    1   before repair
    2   ledger records with `joining`, `whole`, `lost` and `frozen`; floors (`deleted_below`); the answer ERASED

Swaps, floors and erasing begin only when every registered process has version 2 (hazard 80): an older owner would write
a topic record without its floor, and an older node would take an erased copy for a missing one.
"""

#: This program's version. A registration without one has version 1.
PROCESS_VERSION = 2
#: The lowest version of all registered processes with which repair and erasing may begin.
REPAIR_VERSION = 2
