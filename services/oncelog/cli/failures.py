"""What users see when a command fails: one sentence on standard error that says what to do next, and an exit code.

0    done
1    refused or failed: the same command fails again
2    the command line is wrong
4    not reached, or no answer in time: trying again is right
70   a bug: please report it with its trace
130  interrupted by Ctrl-C or SIGTERM; what was acknowledged is stored
"""

import traceback
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from oncelog.core import errors

if TYPE_CHECKING:
    from rich.console import Console

EXIT_CODES = "Exit codes: 0 done; 1 failed; 2 wrong usage; 4 cluster not reached, try again; 70 a bug; 130 interrupted."


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 4
    BUG = 70
    INTERRUPTED = 130


#: What to do about an error whose own message does not say it.
_ADVICE: dict[type[errors.OncelogError], str] = {
    errors.ProducerFenced: "another instance has this name: stop one of them, or use another --producer-name",
    errors.TopicNotFound: "create it: oncelog admin topics create TOPIC",
    errors.NamespaceNotFound: "create it: oncelog admin namespaces create NAMESPACE",
    errors.ModeMismatch: "this name was first used with the other sequence mode: use another --producer-name",
    errors.StaleSequence: "the file is not the one that this producer has published: use another --producer-name",
    errors.MessageTooLarge: "one line is longer than a message may be: split it, or allow it in the owners' settings",
    errors.Unauthenticated: "give the token of a role: --token-file FILE, or ONCELOG_TOKEN_FILE",
    errors.PermissionDenied: "an administrator grants it: oncelog admin namespaces grant NAMESPACE ROLE RIGHT",
    errors.ServiceUnavailable: "is --url right, and does the cluster run? oncelog standalone starts one",
    errors.DeadlineExceeded: "is --url right, and does the cluster run? --timeout waits longer",
}

#: About an address that is not reached, by words of its origin: what else than waiting may help.
_REACH_ADVICE = {
    "advertised by topic owner": "the cluster answers, but this address of one of its topic owners is not reached from "
    "here: use oncelog+proxy:// (or oncelog+proxy+tls://) in --url, which needs no other address, or have owners "
    "advertise a host and port that lead to them (--advertised-host, --advertised-port; the chart's owner.external)",
    "called by the gateway": "the cluster answers, but does not reach one of its own topic owners: look at that owner",
}

#: What gRPC and OpenSSL say when TLS does not come about, and what to do: it looks like a server that is away, but
#: waiting mends nothing.
_TLS_ADVICE = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not of this CA: give the cluster's own ca.crt, --tls-ca-file FILE "
    "or ONCELOG_TLS_CA_FILE",
    "not in peer certificate": "its certificate has another name: it must have the name oncelog; is --url right?",
    "WRONG_VERSION_NUMBER": "plain text is spoken there: use oncelog:// and http://, or the port that speaks TLS",
}


def explain(error: BaseException, console: "Console") -> Exit:
    """Print why the command failed and what to do; returns the code to exit with."""
    leaves = list(_leaves(error))
    lasting = False
    for leaf in leaves:
        if isinstance(leaf, OSError) and leaf.filename is not None:
            console.print(f"error: {leaf.strerror}: {leaf.filename}", markup=False, soft_wrap=True)
        elif not isinstance(leaf, errors.OncelogError) or isinstance(leaf, errors.InvariantViolated):
            console.print("a bug, please report it:\n" + "".join(traceback.format_exception(leaf)), markup=False)
            return Exit.BUG
        else:
            console.print(f"error: {leaf} [{leaf.code}]", markup=False, soft_wrap=True)
            tls = next((text for words, text in _TLS_ADVICE.items() if leaf.retriable and words in leaf.message), None)
            lasting = lasting or tls is not None
            reach = next((text for words, text in _REACH_ADVICE.items() if words in leaf.message), None)
            advice = tls or reach or next((text for kind, text in _ADVICE.items() if isinstance(leaf, kind)), None)
            if advice is not None:
                console.print(f"  {advice}", markup=False, soft_wrap=True)
    retriable = all(isinstance(leaf, errors.OncelogError) and leaf.retriable for leaf in leaves)
    return Exit.UNAVAILABLE if retriable and not lasting else Exit.FAILED


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that a group is made of; task groups raise even a single one wrapped."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
