"""File descriptors: as many as the system allows, and shares of them that connections may take.

A process that runs out of descriptors can neither take connections nor open files. So the soft limit is raised to the
hard one at the start, and connections get at most half of it: files, channels to other processes and the journal of a
storage node have the rest.
"""

import logging
import resource

logger = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns what is in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)
            return soft
    return hard


def connections_within(wanted: int) -> int:
    """How many of `wanted` connections the process can have and still open files: at most half of its descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 2))
    if allowed < wanted:
        fields = {"wanted": wanted, "allowed": allowed, "open_files_max": soft}
        logger.warning("fewer connections are allowed than set, for open files are limited", extra={"fields": fields})
    return allowed
