"""Freed memory: a stream of frames must not pay for fresh pages in each of them."""

import platform
import subprocess
import sys

_PROGRAM = """
import resource
from oncelog.runtime.memory import keep_freed_memory

def frames(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        held = [b"x" * 262_144 for _ in range(4)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(keep_freed_memory())
frames(10)
print(frames(100))
"""


def test_frames_reuse_the_memory_of_those_before() -> None:
    """Without it each of these 400 blocks of 64 pages may fault them all in again."""
    answer = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=30)
    kept, faults = answer.stdout.split()
    on_glibc = platform.libc_ver()[0] == "glibc"
    assert kept == str(on_glibc)
    assert not on_glibc or int(faults) < 400
