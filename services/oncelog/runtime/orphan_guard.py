"""A command that ends with the process that started it, however that one ends.

A supervisor killed with -9 drains nobody, and what it leaves behind would serve on, on ports and directories that its
next run needs. Linux can send a child a signal when its parent dies; the child has to ask for it itself, between fork
and exec. `preexec_fn` is unsafe once threads run, so a short-lived interpreter asks and then becomes the command.

"Parent" is the thread that forked: start guarded commands from a thread that lives as long as they should.
"""

import os
import sys
from collections.abc import Sequence
from signal import SIGTERM

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

# The parent may have died before prctl: then its child has another parent already, and must not begin.
_BECOME = """
import ctypes, os, sys
ctypes.CDLL(None).prctl({option}, {signal})
if os.getppid() != int(sys.argv[1]):
    sys.exit(0)
os.execv(sys.argv[2], sys.argv[2:])
""".strip()


def guarded(command: Sequence[str]) -> list[str]:
    """Return `command` so wrapped that SIGTERM reaches it when this process dies.

    command: its first item is the absolute path of a program. The process id is that of the command, for the
    interpreter in between becomes it. Costs about 20 ms a start.
    """
    become = _BECOME.format(option=_PR_SET_PDEATHSIG, signal=int(SIGTERM))
    return [sys.executable, "-I", "-S", "-c", become, str(os.getpid()), *command]
