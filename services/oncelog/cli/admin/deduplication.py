"""`oncelog admin topics deduplication`: what the owner of a topic knows of its producers, snapshots, and the proof that
a takeover would come to the same."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import NegativeAnswer, admin_command
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import topic_path
from oncelog.cli.admin.waiting import progress, waited

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic or partition: name, or tenant/namespace/name.")
]

_HELP = """Show the deduplication of a topic, write a snapshot of it, and verify it.

    oncelog admin topics deduplication status orders

    oncelog admin topics deduplication snapshot orders

    oncelog admin topics deduplication verify orders

The policy that switches deduplication on and off is `topics set-deduplication`."""

deduplication = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def add_deduplication(topics: typer.Typer) -> None:
    """Add the group to the commands for topics."""
    topics.add_typer(deduplication, name="deduplication")


@admin_command(deduplication, "status")
def show_deduplication(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show whether deduplication is on and which level says so, producers, memory, duplicates refused, the newest
    snapshot and how much a takeover would replay behind it, and failures of the snapshot writer."""
    return api.get(f"{topic_path(topic)}/deduplication")


@admin_command(deduplication, "snapshot")
def take_snapshot(api: AdminApi, topic: TopicArgument) -> Answer:
    """Write a snapshot now, so that a takeover has little to replay. Ends when the snapshot is durable."""
    return api.post(f"{topic_path(topic)}/deduplication/snapshot")


@admin_command(deduplication, "verify")
def verify_deduplication(
    api: AdminApi,
    topic: TopicArgument,
    bytes_per_second: Annotated[
        int | None,
        typer.Option(min=64 * 1024, max=1 << 30, help="How fast the owner reads. Default: 4 MiB.", show_default=False),
    ] = None,
    wait_seconds: Annotated[int, typer.Option(min=0, help="Stop waiting after this long; the proof goes on.")] = 3_600,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the verification that goes on.")] = False,
) -> Answer:
    """Prove that the newest snapshot and the log behind it give the state that the owner has.

    The owner reads both from the storage nodes, in the background, while the topic serves. The exit code is 0 only if
    all producers are equal. A difference is named with its producer, what the log says (expected) and what the owner
    has (found). If the topic moves to another owner meanwhile, the proof begins again there. Ctrl-C does not end it.
    """
    path = f"{topic_path(topic)}/deduplication/verify"
    if cancel:
        state = _object(api.delete(path)).get("state")
        if state is None:
            return f"no verification of topic {topic} runs, and its owner knows of none"
        if state != "cancelled":
            return f"no verification of topic {topic} runs: the newest one has ended, as {state}"
        return f"the verification of topic {topic} is cancelled"
    body: Answer = None if bytes_per_second is None else {"bytes_per_second": bytes_per_second}
    running = _object(api.post(path, body))

    def look() -> tuple[bool, str, dict[str, object]]:
        nonlocal running
        seen = _object(api.get(path))
        if seen.get("id") != running.get("id"):
            progress(f"topic {topic} has moved to another owner: the verification begins again")
            seen = _object(api.post(path, body))
        running = seen
        return seen.get("state") not in ("queued", "running"), _line(seen), seen

    verdict = waited(wait_seconds, look)
    if verdict.get("state") != "equal":
        raise NegativeAnswer(verdict)
    return verdict


def _object(answer: Answer) -> dict[str, object]:
    return answer if isinstance(answer, dict) else {}


def _line(seen: dict[str, object]) -> str:
    """Progress: what was read and compared."""
    line = (
        f"{seen.get('state')}: {seen.get('entries_read')} entries read, "
        f"{seen.get('producers_compared')} of {seen.get('producer_count')} producers compared, "
        f"{seen.get('differences_count')} differ"
    )
    waiting = seen.get("waiting") or seen.get("error")
    return f"{line}; {waiting}" if waiting else line
