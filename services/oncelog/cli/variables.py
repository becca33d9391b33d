"""A warning about variables of the environment that no program of the project reads: a misspelt one has no effect.

What Kubernetes sets in a pod for a Service whose name begins with `oncelog` is none of them.
"""

import re
import sys
from collections.abc import Mapping

#: What begins like a variable of the project; `runtime.settings` has it, too, and is loaded only if there is one.
_PREFIX = "ONCELOG_"
_OF_KUBERNETES = re.compile(r"\w+_SERVICE_(HOST|PORT)(_\w+)?|\w+_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_LINK = re.compile(r"(tcp|udp|sctp)://")
#: Names in one warning.
_NAMED_MAX = 10


def warn_of_unknown(environment: Mapping[str, str]) -> None:
    """On standard error, in one line, with the nearest known names."""
    own = {
        name: value
        for name, value in environment.items()
        if name.startswith(_PREFIX) and not _OF_KUBERNETES.fullmatch(name) and not _LINK.match(value)
    }
    if not own:
        return
    from oncelog.runtime.settings import unknown_variables

    unknown = unknown_variables(own)
    if unknown and sys.stderr is not None:
        named = [f"{ascii(name)[1:-1]} (the nearest known one is {near})" for name, near in unknown.items()]
        more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
        print(f"warning: unknown variables have no effect: {', '.join(named[:_NAMED_MAX])}{more}", file=sys.stderr)
