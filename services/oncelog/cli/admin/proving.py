"""`oncelog admin topics prove`: the online proof of topics. And `oncelog admin topics deduplication`: what its owner
knows of its producers, snapshots, and the proof that a takeover would come to the same."""

import time
from typing import Annotated, Any, cast

import typer

from oncelog.cli.admin.commands import NegativeAnswer, Report, admin_command
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import ROOT, namespaces_path, topic_path, topics_path
from oncelog.cli.admin.waiting import progress, waited
from oncelog.cli.failures import Exit
from oncelog.core.errors import TopicNotFound

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic or partition: name, or tenant/namespace/name.")
]

ProvedTopicArgument = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="Topic or partition: name, or tenant/namespace/name.", show_default=False),
]
#: Of the verdict of each topic, where several are proved.
_ROW = ("topic", "verdict", "messages", "findings_count", "not_checked_count", "findings", "not_checked")


def add_proving(topics: typer.Typer) -> None:
    """Add `prove` and `deduplication` to the commands for topics."""
    admin_command(topics, "prove")(prove_topics)
    admin_command(topics, "deduplication", line="Show, snapshot or verify deduplication.")(deduplication)


def prove_topics(
    api: AdminApi,
    topic: ProvedTopicArgument = None,
    namespace: Annotated[
        str | None,
        typer.Option(help="Prove each topic and partition of this namespace: tenant/namespace.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Prove each topic and partition of the cluster.")] = False,
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
    wait_seconds: Annotated[
        int, typer.Option(min=0, help="Stop waiting after this long; the proof continues.")
    ] = 86_400,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the running proof.")] = False,
) -> Answer | Report:
    """Prove that each message of a topic is stored once, on enough disks, and that a takeover would lose nothing.

    A metadata service reads the log up to its present end: each entry; each copy, which the storage nodes read back
    from their disks; the producers of the topic owner and its newest snapshot; and, at the owner, this snapshot with
    the log and the ack log behind it. The topic serves meanwhile. Ctrl-C does not end the proof; the same command joins
    it. The verdict stays with the topic. With --namespace or --all the topics are proved one after the other; a topic
    without an owner is placed first.

    Exit codes: 0 proved: everything was read, and nothing was found. 1 failed: damage was found, each with its
    position; or the proof was cancelled, or still runs when the wait is over. 2 incomplete: nothing was found, but the
    data that `not_checked` names was not read; or wrong usage. For several topics: 1 if one failed, otherwise 2 if one
    is incomplete.
    """
    if (topic is not None) + (namespace is not None) + every != 1:
        raise typer.BadParameter("name a topic, or set --namespace or --all")
    limits = {"bytes_per_second": bytes_per_second, "cpu_percent": cpu_percent}
    asked = {name: value for name, value in limits.items() if value is not None}
    if topic is not None:
        return _cancelled(api, topic) if cancel else _exit(*_proved(api, topic, asked, wait_seconds))
    topics = _topics(api, namespace)
    if cancel:
        return [{"topic": each, "proof": _cancelled(api, each)} for each in topics]
    return _prove_each(api, topics, asked, wait_seconds)


def _prove_each(api: AdminApi, topics: list[str], asked: dict[str, int], wait_seconds: int) -> Report:
    ends_s = time.monotonic() + wait_seconds
    shown, answers, states = list[object](), list[object](), set[object]()
    for number, each in enumerate(topics, start=1):
        progress(f"{number} of {len(topics)}: {each}")
        try:
            report, state = _proved(api, each, asked, max(0, int(ends_s - time.monotonic())))
        except TopicNotFound:
            continue  # deleted since they were listed
        except NegativeAnswer as late:
            late.answer = Report(shown, answers)
            raise
        row = _object(report.shown)
        shown.append({name: row[name] for name in _ROW if row[name] != []})
        answers.append(report.answer)
        states.add(state)
    of_all = "proved" if states <= {"proved"} else "incomplete" if states <= {"proved", "incomplete"} else "failed"
    return _exit(Report(shown, {"verdict": of_all, "topics": answers}), of_all)


def _exit(report: Report, state: object) -> Report:
    if state != "proved":
        raise NegativeAnswer(report, Exit.USAGE if state == "incomplete" else Exit.FAILED)
    return report


def _topics(api: AdminApi, namespace: str | None) -> list[str]:
    """Each topic, and each partition that was used. namespace: None: of all."""
    if namespace is not None:
        return _names(api.get(topics_path(namespace), doors=True))
    namespaces = [
        each for tenant in _names(api.get(f"{ROOT}/tenants")) for each in _names(api.get(namespaces_path(tenant)))
    ]
    return [topic for each in namespaces for topic in _names(api.get(topics_path(each), doors=True))]


def _names(answer: Answer) -> list[str]:
    return [str(each) for each in answer] if isinstance(answer, list) else []


def _cancelled(api: AdminApi, topic: str) -> str:
    left = _object(api.delete(f"{topic_path(topic)}/proof"))
    if left.get("going") is not None:
        return f"the proof of topic {topic} ends as cancelled within seconds"
    state = _object(left.get("verdict")).get("state")
    return f"no proof of topic {topic} goes on" + (f": the newest one has ended, as {state}" if state else "")


def _proved(api: AdminApi, topic: str, limits: dict[str, int], wait_seconds: int) -> tuple[Report, object]:
    """(the verdict, its state). Raises NegativeAnswer when the time is up."""
    path = f"{topic_path(topic)}/proof"
    asked = _object(api.post(path, dict(limits)))

    def look() -> tuple[bool, str, dict[str, object]]:
        seen = _object(api.get(path))
        going, verdict = _object(seen.get("going")), _object(seen.get("verdict"))
        over = not going and verdict.get("asked_ms") == asked.get("asked_ms")
        return over, _proof_line(verdict if over else going), seen

    seen = waited(wait_seconds, look)
    verdict = _object(seen["verdict"])
    return Report(_shown_proof(verdict, seen), seen), verdict.get("state")


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


def deduplication(
    api: AdminApi,
    topic: TopicArgument,
    snapshot: Annotated[
        bool,
        typer.Option(
            "--snapshot",
            help="Write a snapshot now, so that a takeover has little to replay. Ends when it is durable.",
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Prove that the newest snapshot, the log and the ack log after it result in the owner's state.",
        ),
    ] = False,
    bytes_per_second: Annotated[
        int | None,
        typer.Option(
            min=1024 * 1024,
            max=1 << 30,
            help="With --verify: how fast the owner reads. Default: 4 MiB.",
            show_default=False,
        ),
    ] = None,
    wait_seconds: Annotated[
        int, typer.Option(min=0, help="With --verify: stop waiting after this long; the proof continues.")
    ] = 3_600,
    cancel: Annotated[bool, typer.Option("--cancel", help="With --verify: cancel the running verification.")] = False,
) -> Answer:
    """Show the deduplication of a topic, write a snapshot of it, or verify it.

    Shows whether it is on and which level sets it, producers, memory, duplicates refused, the newest snapshot and how
    much a takeover would replay behind it, and failures of the snapshot writer. `oncelog admin policy set PLACE
    deduplication on` switches it on.

    For --verify the owner reads from the storage nodes, in the background, while the topic serves. The exit code is 0
    only if all producers and subscriptions are equal. A difference has its producer or subscription, the value in the
    log (expected) and at the owner (found). If the topic moves to another owner meanwhile, the proof begins again
    there. Ctrl-C does not end it.
    """
    if snapshot and verify:
        raise typer.BadParameter("give one of --snapshot and --verify")
    if not verify and (cancel or bytes_per_second is not None):
        raise typer.BadParameter("--cancel and --bytes-per-second belong to --verify")
    path = f"{topic_path(topic)}/deduplication"
    if verify:
        return _verified(api, topic, bytes_per_second, wait_seconds, cancel=cancel)
    return api.post(f"{path}/snapshot") if snapshot else api.get(path)


def _verified(api: AdminApi, topic: str, bytes_per_second: int | None, wait_seconds: int, *, cancel: bool) -> Answer:
    """Raises NegativeAnswer unless all are equal."""
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
