"""Memory in processes that move frames of 256 KiB: what the C allocator does with freed blocks, and how often Python
looks for cycles.

glibc gives blocks of that size back to the kernel when they are freed, and each new frame then pays for fresh pages: 64
page faults in every copy, more than everything else done to it. Kept instead, a stream of such frames is half as fast
again (460 -> 650 MB/s of one stream, measured on two cores).
"""

import ctypes
import gc

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
#: Free memory at the end of the heap that is kept; what one process may hold too much.
KEPT_BYTES_MAX = 64 * 1024 * 1024
#: Larger blocks still come from the kernel one by one; the largest value that glibc takes.
HEAP_BLOCK_BYTES_MAX = 32 * 1024 * 1024
#: New objects between two collections of the young. What is in flight (batches, futures, answers) is live whenever the
#: collector looks and free of cycles, so looking every 700 objects, the default, is a fifth of all processor time.
YOUNG_OBJECTS = 20_000
#: Collections of one generation between two of the next older.
COLLECTIONS = 20


def tune_memory() -> None:
    """Both, for a process of ours: call it once all is imported, for what exists by then is not looked at again."""
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, COLLECTIONS, COLLECTIONS)


def keep_freed_memory() -> bool:
    """Keep freed blocks of up to HEAP_BLOCK_BYTES_MAX for the next frame. Returns False where the allocator has no such
    setting (not glibc)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX))
