"""Memory settings of processes that move large frames: the C allocator's handling of freed blocks, and the frequency of
Python's garbage collection.

By default glibc returns freed blocks of 256 KiB to the kernel. Each new frame then needs fresh pages, 64 page faults
for each copy, which costs more than all other work on the frame. Keeping the blocks makes a stream of such frames about
40 % faster.
"""

import ctypes
import gc

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
#: Free memory that is kept at the end of the heap, at most.
KEPT_BYTES_MAX = 64 * 1024 * 1024
#: Larger blocks are still requested from the kernel one by one; the largest value that glibc accepts.
HEAP_BLOCK_BYTES_MAX = 32 * 1024 * 1024
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


def keep_freed_memory() -> bool:
    """Keep freed blocks of up to HEAP_BLOCK_BYTES_MAX. Returns False when the allocator does not support it (not
    glibc)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX))
