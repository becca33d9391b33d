"""Freed memory: a stream of frames must not cause page faults for new memory in each frame."""

import os
import platform
import subprocess
import sys

from oncelog.runtime.memory import YOUNG_OBJECTS, thresholds_set

_FRAMES = """
import resource

def frames(count=100):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        held = [b"x" * 262_144 for _ in range(4)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def look(what):
    frames(10)
    print(what, frames() < 400)
"""
_SERVICE = """
from oncelog.runtime.memory import keep_freed_memory
print("kept", keep_freed_memory())
look("service")
"""
_CLIENT = """
import gc, os, threading
import oncelog
oncelog.connect
look("import")
with oncelog.Client("oncelog://127.0.0.1:1"):
    look("client")
    thread = threading.Thread(target=look, args=("thread",))
    thread.start()
    thread.join()
    if os.fork() == 0:
        look("child")
        os._exit(0)
    os.wait()
print("gc", gc.get_threshold() == (700, 10, 10) and gc.get_freeze_count() == 0)
"""
_WITHOUT = """
import ctypes
import oncelog
oncelog.Client("oncelog://127.0.0.1:1", keep_memory=False).close()
look("without")
oncelog.Client("oncelog://127.0.0.1:1").close()
look("with")
mallopt = ctypes.CDLL(None).mallopt
mallopt(-3, 131072), mallopt(-1, 131072)
oncelog.Client("oncelog://127.0.0.1:1").close()
look("own")
"""
_NO_CTYPES = """
import sys
sys.modules["ctypes"] = None
from oncelog.runtime.memory import keep_freed_memory
print("kept", keep_freed_memory())
"""


def run(program: str, **environment: str) -> dict[str, bool]:
    """{what it looked at: whether frames reused the memory of earlier ones}. Without it, each of 400 blocks of 64 pages
    faults in all of its pages again."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    answer = subprocess.run(
        [sys.executable, "-uc", _FRAMES + program],
        capture_output=True, text=True, check=True, timeout=300, env=own | environment,
    )  # fmt: skip
    return {what: kept == "True" for what, kept in map(str.split, answer.stdout.splitlines())}


def test_frames_of_a_service_reuse_the_memory_of_earlier_frames() -> None:
    """Where the allocator has the settings."""
    seen = run(_SERVICE)
    assert seen["kept"] == (platform.libc_ver()[0] == "glibc")
    assert seen["service"] or not seen["kept"]


def test_first_client_keeps_freed_memory_and_leaves_the_garbage_collector_alone() -> None:
    """Not the import; and in all threads, and in children that are forked later."""
    glibc = platform.libc_ver()[0] == "glibc"
    seen = run(_CLIENT)
    assert seen["gc"]
    if glibc:
        assert seen == {"import": False, "client": True, "thread": True, "child": True, "gc": True}


def test_client_leaves_memory_alone_where_its_user_wants_that() -> None:
    """By the argument; by a call of the program itself behind the first client; by the environment, also in a service.
    The number of arenas is another matter."""
    if platform.libc_ver()[0] != "glibc":
        return
    assert run(_WITHOUT) == {"without": False, "with": True, "own": False}
    assert run(_SERVICE, MALLOC_TRIM_THRESHOLD_="131072") == {"kept": False, "service": False}
    assert run(_SERVICE, GLIBC_TUNABLES="glibc.malloc.mmap_threshold=131072") == {"kept": False, "service": False}
    assert run(_SERVICE, MALLOC_ARENA_MAX="1") == {"kept": True, "service": True}


def test_each_threshold_in_the_environment_counts_as_the_users_decision() -> None:
    """glibc, too, ends its own adjusting of the thresholds then."""
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_"):
        assert thresholds_set({name: "1"})
    assert thresholds_set({"GLIBC_TUNABLES": "glibc.rtld.nns=2:glibc.malloc.top_pad=1"})
    assert not thresholds_set({"MALLOC_ARENA_MAX": "2", "GLIBC_TUNABLES": "glibc.malloc.arena_max=2"})


def test_python_without_ctypes_is_no_error() -> None:
    """As of some programs that embed it."""
    assert run(_NO_CTYPES) == {"kept": False}


def test_garbage_collector_runs_rarely_and_only_on_new_objects() -> None:
    program = "import gc\nfrom oncelog.runtime.memory import tune_memory\ntune_memory()\n"
    program += "print(gc.isenabled(), gc.get_threshold()[0], gc.get_freeze_count() > 1000)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout.split() == ["True", str(YOUNG_OBJECTS), "True"]
