"""When the disk of a storage node is too full: for ordinary adds, and before that for repair adds.

Counted is what would be left after the next roll, which takes a segment and missing spare space at once: looked at
afterwards, the limit would be passed by two segments.
Repair adds are refused at a higher limit: otherwise copies for other nodes would make this node read-only (hazard
reserve-used-by-repair).
"""

#: Writable again only above this multiple of the limit: each change makes owners roll their ledgers.
WRITABLE_FACTOR = 1.25
#: Repair adds are refused below this multiple of the limit. It is above WRITABLE_FACTOR, so a repair cannot end in a
#: node that becomes read-only and writable in turn.
REPAIR_FACTOR = 1.5


def refuses_adds(left_bytes: int, *, free_bytes_min: int, refused: bool = False) -> bool:
    """Whether ordinary adds are refused. left_bytes: free after the next roll. refused: whether they were until now."""
    return left_bytes < free_bytes_min * (WRITABLE_FACTOR if refused else 1.0)


def refuses_repairs(left_bytes: int, *, free_bytes_min: int) -> bool:
    """Whether repair adds are refused."""
    return left_bytes < free_bytes_min * REPAIR_FACTOR
