"""Memory settings of processes that move large frames: the C allocator's handling of freed blocks, and the frequency of
Python's garbage collection.

By default glibc returns freed blocks of 256 KiB to the kernel. Each new frame then needs fresh pages, 64 page faults
for each copy, which costs more than all other work on the frame. Keeping the blocks makes a stream of such frames about
40 % faster.

Services apply both settings. The process of a user's client keeps freed memory, and has the garbage collector as the
user has set it.
"""

import gc
import os
from collections.abc import Mapping
from functools import cache

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
#: Free memory that is kept at the end of each heap, at most. With the next limit, this is what glibc itself sets in a
#: program that has freed one block of 32 MiB (mallopt(3), M_MMAP_THRESHOLD).
KEPT_BYTES_MAX = 64 * 1024 * 1024
#: Larger blocks are still requested from the kernel one by one; the largest value that glibc accepts.
HEAP_BLOCK_BYTES_MAX = 32 * 1024 * 1024
#: glibc's settings that decide what is kept. A program with one of them in its environment has decided.
_THRESHOLDS = ("trim_threshold", "mmap_threshold", "top_pad", "mmap_max")
#: New objects between two collections of the youngest generation. In-flight objects (batches, futures, answers) are
#: live and free of cycles, so the default of 700 would waste a fifth of the CPU time.
YOUNG_OBJECTS = 20_000
#: Collections of one generation between two collections of the next older one.
COLLECTIONS = 20


def tune_memory() -> None:
    """Apply both settings. Call it after all imports: objects that exist by then are exempt from collection."""
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, COLLECTIONS, COLLECTIONS)


@cache
def keep_freed_memory() -> bool:
    """Keep freed blocks of up to HEAP_BLOCK_BYTES_MAX. Only the first call in a process, or in one that it was forked
    from, does anything.

    Returns False if nothing was changed: the allocator has no such settings (it is not glibc's), or the environment has
    set one of them.
    """
    if thresholds_set(os.environ):
        return False
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
    except (ImportError, AttributeError, OSError, TypeError):
        return False  # a Python without ctypes, another C library, a static one, Windows
    return bool(mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX))


def thresholds_set(environment: Mapping[str, str]) -> bool:
    """Whether the environment has a setting of glibc that decides what is kept, in either form."""
    tunables = environment.get("GLIBC_TUNABLES", "")
    return any(f"MALLOC_{each.upper()}_" in environment or f"malloc.{each}=" in tunables for each in _THRESHOLDS)
