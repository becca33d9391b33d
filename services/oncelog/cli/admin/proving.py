"""`oncelog admin topics prove`: the online proof of a topic. And `oncelog admin topics deduplication`: what its owner
knows of its producers, snapshots, and the proof that a takeover would come to the same."""

from typing import Annotated, Any, cast

import typer

from oncelog.cli.admin.commands import NegativeAnswer, Report, admin_command
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import topic_path
from oncelog.cli.admin.waiting import progress, waited
from oncelog.cli.failures import Exit

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic or partition: name, or tenant/namespace/name.")
]

_HELP = """Show the deduplication of a topic, write a snapshot of it, and verify it.

    oncelog admin topics deduplication status orders

    oncelog admin topics deduplication snapshot orders

    oncelog admin topics deduplication verify orders

`oncelog admin policy set PLACE deduplication on|off` switches it on and off."""

deduplication = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def add_proving(topics: typer.Typer) -> None:
    """Add `prove` and the group `deduplication` to the commands for topics."""
    admin_command(topics, "prove")(prove_topic)
    topics.add_typer(deduplication, name="deduplication")


def prove_topic(
    api: AdminApi,
    topic: TopicArgument,
    bytes_per_second: Annotated[
        int | None,
        typer.Option(
            min=1024 * 1024,
            max=1 << 30,
            help="How fast each storage node and the topic owner read. Default: 4 MiB.",
            show_default=False,
        ),
    ] = None,
    cpu_percent: Annotated[
        int | None,
        typer.Option(
            min=5, max=100, help="Share of one core of the metadata service. Default: 20.", show_default=False
        ),
    ] = None,
    wait_seconds: Annotated[int, typer.Option(min=0, help="Stop waiting after this long; the proof goes on.")] = 86_400,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the proof that goes on.")] = False,
) -> Answer | Report:
    """Prove that each message of a topic is stored once, on enough disks, and that a takeover would lose nothing.

    A metadata service reads the log up to its present end: the header of each entry; each copy, which the storage nodes
    read back from their disks; and, at the topic owner, the newest snapshot with the log and the ack log behind it. The
    topic serves meanwhile. Ctrl-C does not end the proof; the same command joins it. The verdict stays with the topic.

    Exit codes: 0 proved: everything was read, and nothing was found. 1 failed: damage was found, each with its
    position; or the proof was cancelled, or goes on when the wait is over. 2 incomplete: nothing was found, but what
    `not_checked` names was not read; or wrong usage.
    """
    path = f"{topic_path(topic)}/proof"
    if cancel:
        left = _object(api.delete(path))
        if left.get("going") is not None:
            return f"the proof of topic {topic} ends as cancelled within seconds"
        state = _object(left.get("verdict")).get("state")
        return f"no proof of topic {topic} goes on" + (f": the newest one has ended, as {state}" if state else "")
    limits = {"bytes_per_second": bytes_per_second, "cpu_percent": cpu_percent}
    asked = _object(api.post(path, {name: value for name, value in limits.items() if value is not None}))

    def look() -> tuple[bool, str, dict[str, object]]:
        seen = _object(api.get(path))
        going, verdict = _object(seen.get("going")), _object(seen.get("verdict"))
        over = not going and verdict.get("asked_ms") == asked.get("asked_ms")
        return over, _proof_line(verdict if over else going), seen

    seen = waited(wait_seconds, look)
    verdict = _object(seen["verdict"])
    report = Report(_shown_proof(verdict, seen), seen)
    if verdict.get("state") != "proved":
        raise NegativeAnswer(report, Exit.USAGE if verdict.get("state") == "incomplete" else Exit.FAILED)
    return report


def _proof_line(proof: dict[str, object]) -> str:
    """Progress: the state, and what each part has read."""
    parts = [f"{each['part']} {each['done']} of {each['of']}" for each in _parts(proof) if each["state"] != "waiting"]
    found = f"; {proof['findings_count']} findings" if proof.get("findings_count") else ""
    return f"{proof.get('state', 'queued')}: {', '.join(parts) or 'waits for its turn'}{found}"


def _shown_proof(verdict: dict[str, object], seen: dict[str, object]) -> Answer:
    """The verdict, its range, and what each part has read and found."""
    parts, found, gaps = _parts(verdict), list[Answer](), list[Answer]()
    for part in parts:
        for each in part["findings"]:
            place = each["position"] or "the topic"
            found.append({"part": part["part"], "position": place, "message": each["message"]})
        gaps += [{"part": part["part"], "reason": each} for each in part["not_checked"]]
    behind, first, until = seen.get("behind"), cast("int", verdict["from_index"]), cast("int", verdict["until_index"])
    return {
        "topic": verdict["topic"],
        "verdict": verdict["state"],
        "messages": f"index {first} to {until - 1}" if until > first else "none",
        "up_to": verdict["end"],
        "began_ms": verdict["began_ms"],
        "ended_ms": verdict["ended_ms"],
        "behind_and_not_proved": "not known: no owner serves the topic" if behind is None else behind,
        "findings_count": verdict["findings_count"],
        "not_checked_count": verdict["not_checked_count"],
        "findings": found,
        "not_checked": gaps,
        "parts": [{name: part[name] for name in ("part", "done", "of", "unit", "findings_count")} for part in parts],
    }


def _parts(proof: dict[str, object]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", proof.get("parts") or [])


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
        typer.Option(
            min=1024 * 1024, max=1 << 30, help="How fast the owner reads. Default: 4 MiB.", show_default=False
        ),
    ] = None,
    wait_seconds: Annotated[int, typer.Option(min=0, help="Stop waiting after this long; the proof goes on.")] = 3_600,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the verification that goes on.")] = False,
) -> Answer:
    """Prove that the newest snapshot, the log and the ack log behind it give the state that the owner has.

    The owner reads them from the storage nodes, in the background, while the topic serves. The exit code is 0 only if
    all producers and subscriptions are equal. A difference is named with its producer or subscription, what the log
    says (expected) and what the owner has (found). If the topic moves to another owner meanwhile, the proof begins
    again there. Ctrl-C does not end it.
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


def _object(answer: object) -> dict[str, object]:
    return answer if isinstance(answer, dict) else {}


def _line(seen: dict[str, object]) -> str:
    """Progress: what was read and compared."""
    acks = _object(seen.get("subscriptions"))
    line = (
        f"{seen.get('state')}: {seen.get('entries_read')} entries read, "
        f"{seen.get('producers_compared')} of {seen.get('producer_count')} producers compared, "
        f"{seen.get('differences_count')} differ; {acks.get('compared', 0)} of {acks.get('count', 0)} subscriptions "
        f"compared, {acks.get('differences_count', 0)} differ"
    )
    waiting = seen.get("waiting") or seen.get("error")
    return f"{line}; {waiting}" if waiting else line
