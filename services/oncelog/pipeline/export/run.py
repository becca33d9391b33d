"""One run of an export, as a machine: what the last manifest leaves is written, read back and committed. Pure.

    Begin ──> READING ──> ASKING ──┬── nothing new ─────────────────────────────────────────────> Finish
                                   ├── WRITING ──> ASKING_AGAIN ──┬── COMMITTING ──┬─ stored ───> Finish
                                   │                              │                └─ taken ──┐
                                   └── Refuse                     └── not what was wanted ────┴─> REMOVING ──> Refuse

Rules
- Only what a manifest names counts. A run writes into a directory that nobody else ever uses, and its one manifest is
  made by one step that either happens or does not: so a run that dies anywhere counts as a whole, or not at all.
- Manifest n + 1 can be made once. Of two runs that went on from manifest n one finds its number taken, and has exported
  nothing.
- What was written is read back before it counts: every number of each range, once.
- A topic is what its id says. One that was deleted and made anew begins its numbers again; that is told, never mixed.
- A topic that was never exported begins with the first message that is kept. From then on nothing may be lost unless
  that is allowed, and then the manifest says what was.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, assert_never

from oncelog.core.errors import Conflict, InvariantViolated, NotFound, OncelogError
from oncelog.pipeline.export.manifest import DataFile, Manifest, PartRange, Reached, run_name
from oncelog.pipeline.source.offsets import Loss, TopicState

ALLOW_DATA_LOSS = "allowDataLoss"


class Written(NamedTuple):
    """A file as it was read back. index_sum: of the numbers of its rows."""

    file: DataFile
    index_sum: int


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The first event."""


@dataclass(frozen=True, slots=True)
class LastRead:
    """The answer to ReadLast. last: None in a new export."""

    last: Manifest | None


@dataclass(frozen=True, slots=True)
class TopicsTold:
    """The answer to AskTopics: {topic part: its state}, of those that are there."""

    states: Mapping[str, TopicState]


@dataclass(frozen=True, slots=True)
class FilesWritten:
    """The answer to WriteFiles: every file of the run, as it was read back."""

    files: Sequence[Written]


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to Commit: the manifest is there for good."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The other answer to Commit: another run made a manifest of this number."""

    by: str


@dataclass(frozen=True, slots=True)
class Removed:
    """The answer to Remove."""


Event = Begin | LastRead | TopicsTold | FilesWritten | Committed | Taken | Removed


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLast:
    """LastRead."""


@dataclass(frozen=True, slots=True)
class AskTopics:
    """TopicsTold."""


@dataclass(frozen=True, slots=True)
class WriteFiles:
    """FilesWritten. run: the directory, which no other run has."""

    run: str
    ranges: tuple[PartRange, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Committed or Taken."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete this run's own files, which count nothing: Removed."""

    run: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The end. manifest: None: there was nothing new. gone: topics that are not there any more, newly told."""

    manifest: Manifest | None
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """The end: nothing was exported."""

    error: OncelogError


Effect = ReadLast | AskTopics | WriteFiles | Commit | Remove | Finish | Refuse


class State(Enum):
    NEW = "new"
    READING = "reading the last manifest"
    ASKING = "asking for topics"
    WRITING = "writing files"
    ASKING_AGAIN = "asking for topics again"
    COMMITTING = "committing"
    REMOVING = "removing what does not count"
    OVER = "over"


class ExportRun:
    """One run. Each list of effects has one effect, which is answered by one event.

    token: what no other run has. covers: whether this run is to export a topic part of this name, where there is one.
    loss_allowed: go on behind what is lost, and write down what that was.
    """

    def __init__(self, token: str, now_ms: int, covers: Callable[[str], bool], *, loss_allowed: bool) -> None:
        self.state = State.NEW
        self._covers = covers
        self._token = token
        self._now_ms = now_ms
        self._loss_allowed = loss_allowed
        self._last: Manifest | None = None
        self._plan = Plan()
        self._files: tuple[Written, ...] = ()
        self._error: OncelogError | None = None

    @property
    def number(self) -> int:
        """Of the manifest that this run is to make."""
        return 0 if self._last is None else self._last.number + 1

    @property
    def run(self) -> str:
        return run_name(self.number, self._token)

    def handle(self, event: Event) -> list[Effect]:
        match event:
            case Begin():
                self._move(State.NEW, State.READING)
                return [ReadLast()]
            case LastRead():
                self._move(State.READING, State.ASKING)
                self._last = event.last
                return [AskTopics()]
            case TopicsTold():
                return self._planned(event.states) if self.state is State.ASKING else self._judged(event.states)
            case FilesWritten():
                self._move(State.WRITING, State.ASKING_AGAIN)
                self._files = tuple(event.files)
                return [AskTopics()]
            case Committed():
                self._move(State.COMMITTING, State.OVER)
                return [Finish(self._manifest(), self._plan.gone)]
            case Taken():
                self._expect(State.COMMITTING)
                return self._give_up(came_first(event.by, self.number))
            case Removed():
                self._move(State.REMOVING, State.OVER)
                assert self._error is not None
                return [Refuse(self._error)]
            case _:
                assert_never(event)

    def _planned(self, states: Mapping[str, TopicState]) -> list[Effect]:
        try:
            reached = {} if self._last is None else self._last.reached
            reached = {topic: before for topic, before in reached.items() if self._covers(topic)}
            self._plan = plan_of(reached, states, loss_allowed=self._loss_allowed)
        except OncelogError as error:
            self.state = State.OVER
            return [Refuse(error)]
        if not self._plan.ranges and not self._plan.gone:
            self.state = State.OVER
            return [Finish(None)]
        if not any(each.rows for each in self._plan.ranges):
            self.state = State.COMMITTING
            return [Commit(self._manifest())]
        self.state = State.WRITING
        return [WriteFiles(self.run, tuple(each for each in self._plan.ranges if each.rows))]

    def _judged(self, states: Mapping[str, TopicState]) -> list[Effect]:
        self._expect(State.ASKING_AGAIN)
        try:
            self._plan = checked(self._plan, self._files, states, loss_allowed=self._loss_allowed)
        except OncelogError as error:
            return self._give_up(error)
        self.state = State.COMMITTING
        return [Commit(self._manifest())]

    def _manifest(self) -> Manifest:
        reached = {} if self._last is None else dict(self._last.reached)
        for each in self._plan.ranges:
            reached[each.topic] = Reached(each.topic_id, each.end)
        for topic in self._plan.gone:
            reached[topic] = Reached(reached[topic].topic_id, reached[topic].next, gone=True)
        files = tuple(each.file for each in self._files)
        return Manifest(self.number, self.run, self._now_ms, self._plan.ranges, files, reached)

    def _give_up(self, error: OncelogError) -> list[Effect]:
        self._error, self.state = error, State.REMOVING
        return [Remove(self.run)]

    def _move(self, expected: State, following: State) -> None:
        self._expect(expected)
        self.state = following

    def _expect(self, state: State) -> None:
        if self.state is not state:
            raise InvariantViolated(f"an answer for {state.value} came while {self.state.value}")


# --- what to export ---------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """ranges: what is new, by topic part. gone: topics of earlier runs that are not there any more."""

    ranges: tuple[PartRange, ...] = ()
    gone: tuple[str, ...] = ()


def plan_of(reached: Mapping[str, Reached], states: Mapping[str, TopicState], *, loss_allowed: bool) -> Plan:
    """What lies between the last manifest and the ends of the topics. Raises Conflict, NotFound.

    Both are of what this run is to export alone.
    """
    ranges = []
    for topic, state in sorted(states.items()):
        before = reached.get(topic)
        if before is not None and before.topic_id != state.topic_id:
            raise made_anew(topic, before.topic_id, state.topic_id)
        first = state.earliest if before is None else before.next
        kept = max(first, min(state.earliest, state.next))
        if kept > first and not loss_allowed:
            raise lost(Loss(topic, first, kept, state.earliest))
        if state.next > first:
            ranges.append(PartRange(topic, state.topic_id, first, state.next, kept))
    gone = tuple(topic for topic, before in sorted(reached.items()) if topic not in states and not before.gone)
    if gone and not loss_allowed:
        raise NotFound(
            f"{gone[0]}, which is exported up to message {reached[gone[0]].next}, is not there any more, and what was "
            f"published behind that is lost. To go on without it, set {ALLOW_DATA_LOSS} to true once",
            field=ALLOW_DATA_LOSS,
            topic=gone[0],
        )
    return Plan(tuple(ranges), gone)


def checked(plan: Plan, files: Iterable[Written], states: Mapping[str, TopicState], *, loss_allowed: bool) -> Plan:
    """The plan as it was done. Raises NotFound, Conflict; InvariantViolated where files hold what was not asked for."""
    by_topic: dict[str, list[Written]] = {}
    for each in files:
        by_topic.setdefault(each.file.topic, []).append(each)
    done = []
    for wanted in plan.ranges:
        state = states.get(wanted.topic)
        if state is None or state.topic_id != wanted.topic_id:
            message = f"{wanted.topic} was deleted while it was exported: nothing of this run counts. Run it again"
            raise Conflict(message, topic=wanted.topic)
        done.append(_checked_range(wanted, by_topic.pop(wanted.topic, []), loss_allowed=loss_allowed))
    if by_topic:
        raise InvariantViolated(f"files of topics that were not asked for: {', '.join(sorted(by_topic))}")
    return plan._replace(ranges=tuple(done))


def _checked_range(wanted: PartRange, files: Sequence[Written], *, loss_allowed: bool) -> PartRange:
    """Messages are lost from the front alone: what is there must be every number from some place on to the end."""
    rows = sum(each.file.rows for each in files)
    first = min((each.file.first for each in files), default=wanted.end)
    last = max((each.file.last for each in files), default=wanted.end - 1)
    dense = rows == wanted.end - first and last == wanted.end - 1
    if not dense or sum(each.index_sum for each in files) != (first + wanted.end - 1) * rows // 2:
        raise NotFound(
            f"{wanted.topic}: of messages {wanted.kept} to {wanted.end - 1} the files hold {rows} from {first} to "
            f"{last}. Is the directory the same one on the driver and on every executor? Nothing of this run counts",
            topic=wanted.topic,
        )
    if first < wanted.kept:
        raise InvariantViolated(f"{wanted.topic}: files begin at {first}, {wanted.kept} was asked for")
    if first > wanted.kept and not loss_allowed:
        raise lost(Loss(wanted.topic, wanted.kept, first, first))
    return PartRange(wanted.topic, wanted.topic_id, wanted.first, wanted.end, first)


def made_anew(topic: str, before: str, now: str) -> OncelogError:
    """The error for a topic whose name stands for another log than before."""
    return Conflict(
        f"{topic} was deleted and made anew since the last export (id {before} then, {now} now): its numbers begin "
        "again, so the files of both would be mixed up. Export it into a directory of its own",
        topic=topic,
    )


def lost(loss: Loss) -> OncelogError:
    return NotFound(
        f"{loss}, and they were not exported yet. To go on behind them, and have the manifest say so, set "
        f"{ALLOW_DATA_LOSS} to true",
        field=ALLOW_DATA_LOSS,
        topic=loss.topic,
    )


def came_first(by: str, number: int) -> OncelogError:
    """The error for a run whose number is taken."""
    return Conflict(
        f"{by} came first with manifest {number}: another export, or a clean, ran at the same time. Nothing of this "
        "run counts; run it again, and it goes on behind the other"
    )
