"""The report of an audit, as JSON; the table and the picture are made from it. Pure.

verdict     good: every guarantee was checked and holds, up to `end`
            violations: at least one guarantee is violated
            incomplete: no violation was found, but `not_checked` lists what could not be checked
"""

from collections.abc import Mapping, Sequence
from typing import Any

from oncelog.core.counted import counted
from oncelog.core.formats.entry import SequenceMode
from oncelog.verify.copies import shown
from oncelog.verify.range_summary import Finding
from oncelog.verify.topic_check import CHECKS, TopicCheck
from oncelog_spark.audit.job import TopicAudit
from oncelog_spark.audit.topic_plan import TopicPlan

FORMAT = 1
GOOD, VIOLATIONS, INCOMPLETE = "good", "violations", "incomplete"
#: Violations listed of a topic; the rest are counted.
LISTED_MAX = 100
#: Intervals of the timeline.
BUCKETS = 60

Json = dict[str, Any]


def report_of(audits: Sequence[TopicAudit], *, began_ms: int, seconds: float) -> Json:
    """The whole report. began_ms: when the ends of the topics were fixed."""
    topics = [topic_report(audit) for audit in audits]
    verdicts = {topic["verdict"] for topic in topics}
    verdict = next((one for one in (VIOLATIONS, INCOMPLETE) if one in verdicts), GOOD)
    return {
        "format": FORMAT,
        "verdict": verdict if topics else INCOMPLETE,
        "began_ms": began_ms,
        "seconds": round(seconds, 1),
        "topics": topics,
    }


def topic_report(audit: TopicAudit) -> Json:
    """The report of one topic, or partition."""
    plan, check = audit.plan, audit.check
    totals, live = check.joined.totals, plan.owner.live
    violations = [_violation(one) for one in (*check.findings, *plan.subscriptions.findings)]
    count = check.findings_count + len(plan.subscriptions.findings)
    unchecked = _not_checked(plan, check)
    return {
        "topic": plan.topic,
        "topic_id": plan.topic_id,
        "verdict": VIOLATIONS if count else INCOMPLETE if unchecked else GOOD,
        "end": {"position": str(live.position), "next_index": live.next_index},
        "first_index": plan.ledgers[0].first_index if plan.ledgers else 0,
        "ledgers": len(plan.ledgers),
        "ranges": len(plan.ranges),
        "entries": totals.entries,
        "messages": totals.messages,
        "messages_not_deduplicated": totals.unnamed,
        "bytes": totals.bytes,
        "producers": len(check.joined.producers),
        "checks": _checks(plan, check, violations),
        "violations_count": count,
        "violations": violations[:LISTED_MAX],
        "not_checked": unchecked,
        "notes": _notes(audit),
        "duplicates_refused": _refused(plan, check),
        "takeovers": _takeovers(plan, check),
        "timeline": _timeline(check),
    }


def _violation(one: Finding) -> Json:
    return {"rule": one.rule, "position": None if one.position is None else str(one.position), "message": one.message}


def _checks(plan: TopicPlan, check: TopicCheck, violations: Sequence[Json]) -> list[Json]:
    """Each check, with what it was compared with."""
    totals = check.joined.totals
    blind = check.joined.blind
    compared = {
        "once": counted(totals.messages - totals.unnamed, "message"),
        "order": counted(len(check.joined.producers), "producer"),
        "producers": counted(totals.grants, "opening"),
        "base_index": counted(totals.messages, "message"),
        "digests": counted(totals.entries, "entry", "entries"),
        "contiguous": counted(_contiguous(check), "contiguous producer"),
        "copies": _copies(plan, check),
        "chain": counted(len(plan.ledgers), "ledger"),
        "live map": f"{check.live.equal:,} of {counted(len(plan.owner.live.producers), 'producer')} equal",
        "snapshot": "no snapshot was compared",
        "subscriptions": _subscriptions(plan),
    }
    if plan.snapshots.found is not None and check.snapshot is not None:
        snapshot = plan.snapshots.found
        equal = f"{check.snapshot.equal:,} of {counted(len(snapshot.producers), 'producer')} equal"
        batches = counted(totals.remembered, "remembered batch", "remembered batches")
        compared["snapshot"] = f"number {snapshot.number}, as of {snapshot.position}: {equal}, {batches} in place"
    partly = {
        "live map": not check.live.whole,
        "snapshot": _snapshot_unseen(plan, check) is not None,
        "subscriptions": bool(plan.subscriptions.unchecked),
        "copies": plan.all_copies and bool(totals.silent),
        **dict.fromkeys(("once", "order", "producers"), blind),
    }
    found: list[Json] = []
    for name, rules in CHECKS.items():
        count = sum(one["rule"] in rules for one in violations)
        state = "violated" if count else "incomplete" if partly.get(name) else "good"
        if name == "snapshot" and not count and plan.snapshots.found is None and not partly["snapshot"]:
            state = "none"
        found.append({"check": name, "state": state, "violations": count, "compared_with": compared[name]})
    return found


def _subscriptions(plan: TopicPlan) -> str:
    compared = plan.subscriptions
    count = counted(compared.count, "subscription")
    return f"{compared.equal:,} of {count} equal" + (f", as of {compared.position}" if compared.count else "")


def _contiguous(check: TopicCheck) -> int:
    return sum(one.mode in (SequenceMode.CONTIGUOUS, SequenceMode.EPOCHED) for one in check.joined.producers.values())


def _copies(plan: TopicPlan, check: TopicCheck) -> str:
    if not plan.all_copies:
        return f"the beginning of {counted(len(plan.ledgers), 'ledger')} on each member"
    copies = counted(check.joined.totals.copies, "copy", "copies")
    return f"{copies} of {counted(check.joined.totals.entries, 'entry', 'entries')}"


def _silent(check: TopicCheck) -> str:
    return "; ".join(f"{shown(member)}: {why}" for member, why in sorted(check.joined.totals.silent.items()))


def _snapshot_unseen(plan: TopicPlan, check: TopicCheck) -> str | None:
    snapshot, compared = plan.snapshots.found, check.snapshot
    if snapshot is None:
        newer = "later snapshots have replaced those of this position: run the audit again"
        return newer if plan.snapshots.newer else None
    if compared is None:
        return f"snapshot {snapshot.number} has the position {snapshot.position}, which is not in the log any more"
    if not compared.whole:
        return f"{compared.at_least + compared.unseen} producers of the snapshot are not completely in the log"
    return None


def _not_checked(plan: TopicPlan, check: TopicCheck) -> list[str]:
    """What the audit could not check."""
    found: list[str] = []
    if not plan.from_start:
        first = plan.ledgers[0].first_index
        found.append(f"messages 0 to {first - 1} were trimmed: neither they nor duplicates of them are checked")
    if check.joined.totals.lost:
        found.append(f"the contents of {check.joined.totals.lost} entries, which cannot be read")
    if plan.all_copies and check.joined.totals.silent:
        found.append(f"copies on storage nodes that do not answer ({_silent(check)})")
    live = check.live
    if live.not_listed:
        found.append(
            f"the topic owner lists {len(plan.owner.live.producers)} producers; {live.not_listed} other producers of "
            "the log are not compared with it"
        )
    if live.at_least:
        found.append(
            f"{live.at_least} producers have last ids that may come from messages that are not checked: they are "
            "compared as lower bounds"
        )
    if live.unseen:
        found.append(f"{live.unseen} producers of the live map have no message in the log that is kept")
    if plan.subscriptions.unchecked:
        found.append(f"the subscriptions: {plan.subscriptions.unchecked}")
    snapshot = _snapshot_unseen(plan, check)
    return found if snapshot is None else [*found, snapshot]


def _notes(audit: TopicAudit) -> list[str]:
    plan, check = audit.plan, audit.check
    found: list[str] = []
    if audit.grown:
        found.append(f"stored since the audit began, and not checked: {counted(audit.grown, 'message')}")
    totals = check.joined.totals
    if plan.snapshots.found is None and plan.owner.snapshot_number == 0 and not plan.snapshots.newer:
        found.append("no snapshot was taken yet")
    if totals.thin:
        some = counted(totals.thin, "entry has", "entries have")
        found.append(f"{some} fewer copies than members, but at least the ack quorum, as guaranteed")
    if totals.silent and not plan.all_copies:
        found.append(f"copies on storage nodes that do not answer were not checked ({_silent(check)})")
    if not plan.owner.stats.get("deduplication_enabled", True):
        found.append("deduplication is disabled: messages stored meanwhile are not deduplicated")
    if check.count_of("once") or check.count_of("order") or check.count_of("contiguous"):
        found.append(
            "messages that were stored while deduplication was disabled may repeat, be out of order and have "
            "gaps; the log does not show when that was"
        )
    return found


def _refused(plan: TopicPlan, check: TopicCheck) -> Json:
    """in_log: duplicate messages in stored batches, which readers skip. reported_by_owner: from the counters of the
    topic owner since its takeover; a batch that is refused as a whole is not in the log."""
    verdicts: Mapping[str, int] = plan.owner.stats.get("messages_by_verdict", {})
    reported = {name: verdicts[name] for name in ("duplicate", "below_mark") if name in verdicts}
    epoch = plan.owner.owner_epoch
    return {"in_log": check.joined.totals.skipped, "reported_by_owner": reported, "owner_epoch": epoch}


def _takeovers(plan: TopicPlan, check: TopicCheck) -> list[Json]:
    """Takeovers: from the first entry of each owner epoch in the log, otherwise as the topic owner reports them."""
    epochs = check.joined.epochs
    found: list[Json] = [
        {"owner_epoch": one.owner_epoch, "time_ms": one.time_ms, "position": str(one.position), "reported_by": "log"}
        for one in epochs[1 if plan.from_start else 0 :]
    ]
    known = {one.owner_epoch for one in epochs}
    for record in plan.owner.stats.get("takeovers", []):
        epoch = record["owner_epoch"]
        if epoch not in known and epoch <= plan.owner.owner_epoch and (epochs or epoch > 1):
            found.append(
                {"owner_epoch": epoch, "time_ms": record["began_ms"], "position": None, "reported_by": "owner"}
            )
    return sorted(found, key=lambda one: int(one["owner_epoch"]))


def _timeline(check: TopicCheck) -> Json | None:
    totals = check.joined.totals
    if totals.first_ms is None or totals.last_ms is None:
        return None
    span = (totals.first_ms, totals.last_ms, BUCKETS)
    return {
        "first_ms": totals.first_ms,
        "last_ms": totals.last_ms,
        "stored": totals.stored_times.between(*span),
        "duplicates_refused": totals.skipped_times.between(*span),
        "producers_opened": totals.opened_times.between(*span),
    }
