"""File descriptors: the limit of the process, and the share of it for connections.

A process without free descriptors can neither accept connections nor open files. Therefore the soft limit is raised to
the hard limit at the start, and connections get at most half of it. Files, channels to other processes and the journal
of a storage node use the rest.
"""

import logging
import resource

logger = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("cannot raise the limit of open files, it stays at %d: %s", soft, error)
            return soft
    return hard


def connections_within(wanted: int) -> int:
    """`wanted`, or half of the process's descriptors if that is less."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 2))
    if allowed < wanted:
        fields = {"wanted": wanted, "allowed": allowed, "open_files_max": soft}
        logger.warning(
            "the connection limit is reduced, because the limit of open files is low", extra={"fields": fields}
        )
    return allowed
