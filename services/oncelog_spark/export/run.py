"""One run of an export: write the messages behind the last manifest to files, verify the files, commit them. Pure.

    read the last manifest ──> ask for the topics' states ──┬── nothing new ──────────────────────> done
                                                            ├── write files ──> ask again ──> commit the manifest
                                                            └── refuse
    Files that do not hold what was planned, and a manifest whose number is taken: remove the files, and refuse.

Rules
- Only what a manifest names counts. A run writes into a directory that no other run uses, and its one manifest is
  stored by one atomic step. So a run that dies anywhere counts as a whole, or not at all.
- Manifest n + 1 can be stored once. Of two runs that continue after manifest n, one finds the number taken, and has
  exported nothing.
- Files are read back before they count: every message of each range must be there, once.
- A topic is identified by its id. When a topic was deleted and created anew, its message numbers begin again; that is
  an error, so the messages of both are never mixed.
- A topic that was never exported begins with its first message that is kept. From then on nothing may be lost unless
  that is allowed, and then the manifest lists what was lost. Numbers that were given up with a ledger are lost, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from oncelog.core.errors import Conflict, InvariantViolated, NotFound, OncelogError
from oncelog_spark.export.manifest import DataFile, ExportedPosition, ExportManifest, PartitionRange, run_name
from oncelog_spark.source.offsets import GivenUpNumbers, MessageLoss, Span, TopicState, kept_of

ALLOW_DATA_LOSS = "allowDataLoss"


class VerifiedFile(NamedTuple):
    """A file as it was read back. index_sum: of the numbers of its messages."""

    file: DataFile
    index_sum: int


class ExportSteps(Protocol):
    """What a run does on the cluster and in the directory."""

    def last_manifest(self) -> ExportManifest | None:
        """None in a new export."""

    def topic_states(self) -> Mapping[str, TopicState]:
        """{partition of a topic: its state}, of the topics that this run exports and that exist."""

    def write_files(self, number: int, run: str, ranges: Sequence[PartitionRange]) -> Sequence[VerifiedFile]:
        """Write the ranges to the directory of this run, and read all of its files back. number: of its manifest."""

    def commit(self, manifest: ExportManifest) -> str | None:
        """Store the manifest, and return None; or return the name of the run that has stored this number already."""

    def remove(self, run: str) -> None:
        """Delete this run's files, which do not count."""


class RunResult(NamedTuple):
    """manifest None: there was nothing new. gone: topics that this run found deleted, and no run before."""

    manifest: ExportManifest | None
    gone: tuple[str, ...] = ()


def run_export(
    steps: ExportSteps, token: str, now_ms: int, covers: Callable[[str], bool], *, loss_allowed: bool
) -> RunResult:
    """Export what is new. Raises OncelogError and whatever `steps` raises; up to the commit nothing was exported then.

    token: no other run has it. covers: whether this run exports a partition of this name. loss_allowed: continue behind
    messages that are lost, and list them in the manifest.
    """
    last = steps.last_manifest()
    reached = {} if last is None else dict(last.reached)
    number = 0 if last is None else last.number + 1
    run = run_name(number, token)
    own = {topic: before for topic, before in reached.items() if covers(topic)}
    plan = plan_of(own, steps.topic_states(), loss_allowed=loss_allowed)
    if not plan.ranges and not plan.gone:
        return RunResult(None)
    files: Sequence[VerifiedFile] = ()
    ranges = tuple(each for each in plan.ranges if each.rows)
    if ranges:
        try:
            files = steps.write_files(number, run, ranges)
            plan = checked(plan, files, steps.topic_states(), loss_allowed=loss_allowed)
        except BaseException:
            steps.remove(run)
            raise
    for each in plan.ranges:
        reached[each.topic] = ExportedPosition(each.topic_id, each.end)
    for topic in plan.gone:
        reached[topic] = ExportedPosition(reached[topic].topic_id, reached[topic].next, gone=True)
    manifest = ExportManifest(number, run, now_ms, plan.ranges, tuple(each.file for each in files), reached)
    first = steps.commit(manifest)
    if first is not None:
        steps.remove(run)
        raise came_first(first, number)
    return RunResult(manifest, plan.gone)


# --- what to export ---------------------------------------------------------------------------------------------------


class ExportPlan(NamedTuple):
    """ranges: what is new, by partition. gone: topics of earlier runs that do not exist any more."""

    ranges: tuple[PartitionRange, ...] = ()
    gone: tuple[str, ...] = ()


def plan_of(
    reached: Mapping[str, ExportedPosition], states: Mapping[str, TopicState], *, loss_allowed: bool
) -> ExportPlan:
    """What lies between the last manifest and the ends of the topics, both of the topics that this run exports.

    Raises Conflict, NotFound.
    """
    ranges = []
    for topic, state in sorted(states.items()):
        before = reached.get(topic)
        if before is not None and before.topic_id != state.topic_id:
            raise created_anew(topic, before.topic_id, state.topic_id)
        if before is not None and state.next < before.next:
            raise went_back(topic, before.next, state.next)
        first = state.earliest if before is None else before.next
        spans, losses = kept_of([Span(topic, state.topic_id, first, state.next)], states)
        if losses and not loss_allowed:
            raise lost(losses[0])
        if state.next > first:
            kept = spans[0].first if spans else state.next
            gaps = (GivenUpNumbers(loss.first, loss.end or state.next) for loss in losses if loss.first > kept)
            ranges.append(PartitionRange(topic, state.topic_id, first, state.next, kept, tuple(gaps)))
    gone = tuple(topic for topic, before in sorted(reached.items()) if topic not in states and not before.gone)
    if gone and not loss_allowed:
        raise NotFound(
            f"{gone[0]} was deleted. It is exported up to message {reached[gone[0]].next}; later messages, if there "
            f"were any, are lost. To continue without it, set {ALLOW_DATA_LOSS} to true once (--allow-data-loss)",
            field=ALLOW_DATA_LOSS,
            topic=gone[0],
        )
    return ExportPlan(tuple(ranges), gone)


def checked(
    plan: ExportPlan, files: Iterable[VerifiedFile], states: Mapping[str, TopicState], *, loss_allowed: bool
) -> ExportPlan:
    """The plan with what the files hold. Raises NotFound, Conflict; InvariantViolated where files hold other messages
    than planned."""
    by_topic: dict[str, list[VerifiedFile]] = {}
    for each in files:
        by_topic.setdefault(each.file.topic, []).append(each)
    done = []
    for wanted in plan.ranges:
        state = states.get(wanted.topic)
        if state is None or state.topic_id != wanted.topic_id:
            message = f"{wanted.topic} was deleted while it was exported. Nothing was exported; run the export again"
            raise Conflict(message, topic=wanted.topic)
        done.append(_checked_range(wanted, by_topic.pop(wanted.topic, []), loss_allowed=loss_allowed))
    if by_topic:
        raise InvariantViolated(f"files of topics that were not to be exported: {', '.join(sorted(by_topic))}")
    return plan._replace(ranges=tuple(done))


def _checked_range(wanted: PartitionRange, files: Sequence[VerifiedFile], *, loss_allowed: bool) -> PartitionRange:
    """Beyond the plan only the first messages of a range can be lost: files must hold each number from some message on
    to the end, except for those that were given up."""
    rows = sum(each.file.rows for each in files)
    first = min((each.file.first for each in files), default=wanted.end)
    last = max((each.file.last for each in files), default=wanted.end - 1)
    held = replace(wanted, kept=first, given_up=tuple(gap for gap in wanted.given_up if gap.first > first))
    pieces = held.pieces()
    whole = rows == held.rows and last == (pieces[-1][1] if pieces else wanted.end) - 1
    if not whole or sum(each.index_sum for each in files) != sum((a + b - 1) * (b - a) // 2 for a, b in pieces):
        raise NotFound(
            f"{wanted.topic}: of messages {wanted.kept} to {wanted.end - 1} the files hold {rows}, from {first} to "
            f"{last}. Nothing was exported. Check that the driver and all executors see the same directory",
            topic=wanted.topic,
        )
    if first < wanted.kept:
        raise InvariantViolated(f"{wanted.topic}: files begin at message {first} instead of {wanted.kept}")
    if first > wanted.kept and not loss_allowed:
        raise lost(MessageLoss(wanted.topic, wanted.kept, first, first))
    return held


def created_anew(topic: str, before: str, now: str) -> OncelogError:
    """The error for a topic that was deleted and created again."""
    return Conflict(
        f"{topic} was deleted and created anew since the last export (id {before} then, {now} now). Its message "
        "numbers begin again, so files of both would be mixed up. Export it into another directory",
        topic=topic,
    )


def went_back(topic: str, exported: int, now: int) -> OncelogError:
    """The error for a topic whose log has lost messages that were exported (hazard position-of-a-lost-part)."""
    return Conflict(
        f"{topic} is exported up to message {exported - 1}, and its log now ends before message {now}: messages "
        f"{now} to {exported - 1} are lost in the log, and new messages get these numbers again. Files of both would "
        "be mixed up. Export it into another directory",
        topic=topic,
    )


def lost(loss: MessageLoss) -> OncelogError:
    return NotFound(
        f"{loss}, and were not exported. To continue behind them and list them in the manifest, set "
        f"{ALLOW_DATA_LOSS} to true (--allow-data-loss)",
        field=ALLOW_DATA_LOSS,
        topic=loss.topic,
    )


def came_first(by: str, number: int) -> OncelogError:
    """The error for a run whose manifest number is taken."""
    return Conflict(
        f"{by} stored manifest {number} first: another export, or --clean, ran at the same time. Nothing was exported; "
        "run it again, and it continues behind the other"
    )
