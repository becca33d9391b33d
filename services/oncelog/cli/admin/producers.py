"""`oncelog admin producers`: producers of topics, and leases of their ids."""

import secrets
from typing import Annotated

import typer

from oncelog.cli.admin.commands import NegativeAnswer, Report, admin_command
from oncelog.cli.admin.rest import AdminApi, objects
from oncelog.cli.admin.rest_paths import ROOT
from oncelog.cli.admin.topic_producers import add_producer_list, add_producer_removal
from oncelog.cli.admin.units import NO_LIMIT, seconds_of
from oncelog.core.errors import DeadlineExceeded, InvalidArgument
from oncelog.core.ids import GENERATION_MAX, PRODUCER_ID_MAX
from oncelog.core.names import parse_topic
from oncelog.core.policies.producer_lifetimes import LEASE_MS_MAX, LEASE_MS_MIN

_HELP = """Show and change the producers of topics.

    oncelog admin producers list orders --idle-longer-than 30d

    oncelog admin producers show orders till-1

    oncelog admin producers delete orders till-1

    oncelog admin producers lease orders --expires 30d

    oncelog admin producers lease orders --producer-id 4711

    oncelog admin producers lease payments-partition-0 payments-partition-1
"""

TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics without partitions; partitions.")]
LeasedIdOption = Annotated[
    int | None,
    typer.Option(
        "--producer-id", min=1, max=PRODUCER_ID_MAX, help="Lease this id again: its former holder is fenced. One TOPIC."
    ),
]
GenerationOption = Annotated[
    int | None,
    typer.Option(
        "--generation",
        "-g",
        min=1,
        max=GENERATION_MAX,
        help="Current generation of the id: renew the lease, and fence no program.",
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option("--expires", "-e", help="How long an unused id lives: 10s to 366d. Default: 7d, or as before."),
]
RequestIdOption = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        help="Unique text of this request: a repeated command with it leases nothing twice. Default: random.",
    ),
]

producers = typer.Typer(help=_HELP, no_args_is_help=True)
add_producer_list(producers)
add_producer_removal(producers)


@admin_command(producers, "lease", line="Lease producer ids.")
def lease(
    api: AdminApi,
    topics: TopicsArgument,
    producer_id: LeasedIdOption = None,
    generation: GenerationOption = None,
    expires: ExpiresOption = None,
    request_id: RequestIdOption = None,
) -> Report:
    """Lease a new producer id in each topic, or one id again. A lease is durable when it is shown.

    The sequence number is the highest that is stored, -1: none; publish from the next one on. Each topic has its own
    error; the exit code is 1 if there is any. Needs the right `produce`.
    """
    if producer_id is not None and len(topics) > 1:
        raise InvalidArgument("a producer id belongs to one topic: give one TOPIC", field="producer-id")
    if generation is not None and producer_id is None:
        raise InvalidArgument("a new producer has no generation: give --producer-id", field="generation")
    element: dict[str, object] = {}
    if producer_id is not None:
        element["producer_id"] = producer_id
    if generation is not None:
        element["generation"] = generation
    if expires is not None:
        element["expire_ms"] = _expire_ms(expires)
    request_id = request_id or secrets.token_hex(16)
    wanted: list[object] = [{"topic": str(parse_topic(topic)), **element} for topic in topics]
    try:
        answer = api.post(f"{ROOT}/producers/lease", {"leases": wanted, "request_id": request_id})
    except DeadlineExceeded as error:
        raise DeadlineExceeded(f"{error.message}; repeat the command with --request-id {request_id}") from error
    leases = objects(answer.get("leases")) if isinstance(answer, dict) else []
    shown: list[object] = [_shown(each) for each in leases]
    report = Report(shown, answer)
    if any(each.get("error") is not None for each in leases):
        raise NegativeAnswer(report)
    return report


def _expire_ms(expires: str) -> int:
    """Raises InvalidArgument."""
    expire_ms = seconds_of(expires, "expires") * 1000
    if expire_ms == NO_LIMIT * 1000 or not LEASE_MS_MIN <= expire_ms <= LEASE_MS_MAX:
        message = f"expires: {expires} is not between {LEASE_MS_MIN // 1000}s and {LEASE_MS_MAX // 86_400_000}d"
        raise InvalidArgument(message, field="expires", limit=LEASE_MS_MAX // 1000)
    return expire_ms


def _shown(lease: dict[str, object]) -> dict[str, object]:
    """The row of a lease in the table: the code and the text of its error, if it has one."""
    error, expire_ms = lease.get("error"), lease.get("expire_ms")
    return {
        "topic": lease.get("topic"),
        "producer_id": lease.get("producer_id"),
        "generation": lease.get("generation"),
        "sequence_number": lease.get("sequence_number"),
        "expires_in_s": expire_ms // 1000 if isinstance(expire_ms, int) else None,
        "error": f"{error.get('code')}: {error.get('detail')}" if isinstance(error, dict) else None,
    }
