"""Freed memory: a stream of frames must not cause page faults for new memory in each frame."""

import platform
import subprocess
import sys

from oncelog.runtime.memory import YOUNG_OBJECTS

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


def test_frames_reuse_the_memory_of_earlier_frames() -> None:
    """Without the setting, each of these 400 blocks of 64 pages may fault in all of its pages again."""
    answer = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    kept, faults = answer.stdout.split()
    on_glibc = platform.libc_ver()[0] == "glibc"
    assert kept == str(on_glibc)
    assert not on_glibc or int(faults) < 400


def test_garbage_collector_runs_rarely_and_only_on_new_objects() -> None:
    program = "import gc\nfrom oncelog.runtime.memory import tune_memory\ntune_memory()\n"
    program += "print(gc.isenabled(), gc.get_threshold()[0], gc.get_freeze_count() > 1000)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout.split() == ["True", str(YOUNG_OBJECTS), "True"]
