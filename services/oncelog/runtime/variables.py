"""A warning about variables of the environment that no program of the project reads: a misspelt one has no effect. The
command line prints it; a program that connects has it in its log, once in a process.

What Kubernetes sets in a pod for a Service whose name begins with `oncelog` is none of them.
"""

import logging
import re
import sys
from collections.abc import Mapping

logger = logging.getLogger(__name__)

#: What begins like a variable of the project; `runtime.settings` has it, too, and is loaded only if there is one.
_PREFIX = "ONCELOG_"
_OF_KUBERNETES = re.compile(r"\w+_SERVICE_(HOST|PORT)(_\w+)?|\w+_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_LINK = re.compile(r"(tcp|udp|sctp)://")
#: Names in one warning.
_NAMED_MAX = 10


#: Whether this process has warned.
_warned = False


def warn_of_unknown(environment: Mapping[str, str]) -> None:
    """On standard error, in one line, with the nearest known names."""
    global _warned  # noqa: PLW0603
    _warned = True
    text = _about_unknown(environment)
    if text and sys.stderr is not None:
        print(f"warning: {text}", file=sys.stderr)


def log_unknown(environment: Mapping[str, str]) -> None:
    """In the log, unless this process has warned."""
    global _warned  # noqa: PLW0603
    if _warned:
        return
    _warned = True
    text = _about_unknown(environment)
    if text:
        logger.warning("%s", text)


def _about_unknown(environment: Mapping[str, str]) -> str:
    """Empty: there are none."""
    own = {
        name: value
        for name, value in environment.items()
        if name.startswith(_PREFIX) and not _OF_KUBERNETES.fullmatch(name) and not _LINK.match(value)
    }
    if not own:
        return ""
    from oncelog.runtime.settings import unknown_variables

    unknown = unknown_variables(own)
    if not unknown:
        return ""
    named = [f"{ascii(name)[1:-1]} (the nearest known one is {near})" for name, near in unknown.items()]
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    return f"unknown variables have no effect: {', '.join(named[:_NAMED_MAX])}{more}"
