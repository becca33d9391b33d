"""Error messages and exit codes of all commands. An error is one sentence on standard error, with what to do next.

0    success
1    refused or failed; the same command would fail again
2    invalid arguments
4    cluster not reachable, or a timeout; retry
70   a bug; please report it with the stack trace
130  interrupted by Ctrl-C or SIGTERM; acknowledged messages are stored
"""

import traceback
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec

from oncelog.core import errors
from oncelog.runtime.descriptors import OUTPUT, discard_output, sentence_of
from oncelog.runtime.exception_groups import leaves_of

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")
EXIT_CODES = "Exit codes: 0 success; 1 failure; 2 invalid usage; 4 cluster unreachable, retry; 70 bug; 130 interrupted."


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 4
    BUG = 70
    INTERRUPTED = 130


#: {error: what to do}, for errors whose message does not say it.
_ADVICE: dict[type[errors.OncelogError], str] = {
    errors.ProducerFenced: "another instance uses this producer name: stop it, or use another --producer-name",
    errors.TopicNotFound: "check the name: oncelog admin topics list; or create it: oncelog admin topics create TOPIC",
    errors.NamespaceNotFound: "create it: oncelog admin namespaces create NAMESPACE",
    errors.ModeMismatch: "this producer name was first used with the other sequence mode: use another --producer-name",
    errors.StaleSequence: "the file is not the one that this producer name has published: use another --producer-name",
    errors.MessageTooLarge: "a line exceeds the maximum message size: split it, or raise ONCELOG_MESSAGE_BYTES_MAX",
    errors.Unauthenticated: "send a token: --token-file FILE, or ONCELOG_TOKEN_FILE",
    errors.PermissionDenied: "ask an administrator to grant it: oncelog admin namespaces grant NAMESPACE ROLE RIGHT",
    errors.ServiceUnavailable: "check the URL, and that the cluster runs; `oncelog standalone` starts a local one",
    errors.DeadlineExceeded: "check the URL, and that the cluster runs; --timeout sets a longer timeout",
}
#: {field of the error: what to do}, where that is not what its class says.
_FIELD_ADVICE = {
    "max_message_bytes": "read it with a higher limit: --max-message-bytes of oncelog read and oncelog consume, or "
    "connect(max_message_bytes=) of the SDK"
}

#: {part of a message: what to do}, where that is not what its class says
_MESSAGE_ADVICE = {
    "advertised by topic owner": "the cluster is reachable, but not this address of one of its topic owners: use "
    "oncelog+proxy:// (or oncelog+proxy+tls://) in --url, which needs no other address, or make owners advertise "
    "a reachable address (--advertised-host, --advertised-port; owner.external of the Helm chart)",
    "is not a superuser": "no grant allows it: use the token of a superuser, a role in ONCELOG_AUTH_SUPERUSERS of the "
    "metadata services",
    "called by the gateway": "the metadata service cannot reach one of the topic owners: check that owner",
}

#: {part of a TLS error of gRPC or OpenSSL: what to do}. gRPC reports these as an unavailable server, but a retry is
#: pointless.
_TLS_ADVICE = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by this CA: use the cluster's ca.crt with "
    "--tls-ca-file FILE or ONCELOG_TLS_CA_FILE",
    "not in peer certificate": "the server's certificate does not have the name oncelog: check --url",
    "WRONG_VERSION_NUMBER": "the server does not use TLS on this port: use oncelog:// and http://, or the TLS port",
}


def offline(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command that needs no cluster so that its errors are printed with what to do."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (errors.OncelogError, OSError) as error:
            leave(error)

    return run


def leave(error: BaseException) -> NoReturn:
    """Print the error and what to do, and end the program with its exit code."""
    import typer
    from rich.console import Console

    raise typer.Exit(explain(error, Console(stderr=True, highlight=False))) from error


def explain(error: BaseException, console: "Console", *, in_outage: bool = False) -> Exit:
    """Print the error and what to do; returns the exit code. in_outage: the command is for a cluster that is down, so
    nobody is told to see that it runs, or to start another one."""
    leaves = list(leaves_of(error))
    lasting = False
    for leaf in leaves:
        if isinstance(leaf, OSError):
            if leaf.filename == OUTPUT:
                discard_output()  # or it would fail again at exit
            console.print(f"error: {sentence_of(leaf)}", markup=False, soft_wrap=True)
        elif not isinstance(leaf, errors.OncelogError) or isinstance(leaf, errors.InvariantViolated):
            console.print(
                "this is a bug, please report it:\n" + "".join(traceback.format_exception(leaf)), markup=False
            )
            return Exit.BUG
        else:
            console.print(f"error: {leaf} [{leaf.code}]", markup=False, soft_wrap=True)
            tls = next((text for words, text in _TLS_ADVICE.items() if leaf.retriable and words in leaf.message), None)
            lasting = lasting or tls is not None
            told = next((text for words, text in _MESSAGE_ADVICE.items() if words in leaf.message), None)
            field = _FIELD_ADVICE.get(str(leaf.details.get("field")))
            kinds = {} if in_outage and isinstance(leaf, errors.ServiceUnavailable) else _ADVICE
            advice = (
                tls or told or field or next((text for kind, text in kinds.items() if isinstance(leaf, kind)), None)
            )
            if advice is not None:
                console.print(f"  {advice}", markup=False, soft_wrap=True)
    retriable = all(isinstance(leaf, errors.OncelogError) and leaf.retriable for leaf in leaves)
    return Exit.UNAVAILABLE if retriable and not lasting else Exit.FAILED
