"""Memory of a process, as the kernel counts it."""

import os
from pathlib import Path

from oncelog_lab.cluster import ClusterProcess

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(process: ClusterProcess) -> int:
    """0 after its end."""
    try:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return 0
