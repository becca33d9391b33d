"""When producers expire: so that a topic which many short-lived programs write to stays as small as its living ones.

    active ----- lifetime, without a message, a renewal or a session -----> expired
      ^  |                                                                  its id is never issued again,
      `--' message, opening, renewal, session                               its name is free

A producer has a lifetime if it is leased, or if the policies say so for names of its kind. It expires by an entry of
the log (PRODUCERS_AGED), never by a decision of one owner alone. A policy holds once the log says so, by such an entry.

Rules
- No clock decides. The log counts time: the owner's timer fires after a period, and an entry says that so much has
  passed. A wrong clock has no part in it. An owner that slept counts one period, however long it slept, because nobody
  could reach it meanwhile. A takeover loses the period that had begun. All of this makes lives longer, never shorter
  (hazard minimum-lifetime-shortened).
- A message counts as sent when the period before it ended, so a life could seem longer by one period than it is. A
  period is at most an eighth of each lifetime, and a producer expires an eighth after its lifetime.
- A session counts like a message: when it begins, when it ends, and each eighth of the lifetime meanwhile. If what the
  log knows of the producer is older than an eighth, an entry renews it. So a takeover at any moment finds in the log
  that it was there (hazard minimum-lifetime-shortened).
- A producer that may come back after a takeover is renewed when it is due. One with something in flight is left alone.
- A policy that has become shorter counts from the entry that says so, also for producers that have been idle for
  longer. While the policies are not known, or the log does not say yet what they say, only leases expire.
- Ids of one server ascend, and so do the times at which its leases end. So producers of one lifetime are a list in
  order of these times, in which those that are due are found by bisection, and what is renewed moves to its end only
  when its old time has come: a message costs nothing here (source: the idempotent producer proposal, lease_pid).
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

from oncelog.core.formats.producers_aged import NameLifetimes, ProducersAged, Renewal
from oncelog.core.ids import ProducerId
from oncelog.core.policies.producer_lifetimes import EIGHTHS, LEASE_MS, ProducerLifetimes, lease_ms
from oncelog.core.publishing.dedup_state import assigned_name
from oncelog.core.publishing.log import TopicLog
from oncelog.core.publishing.producer_record import Ages
from oncelog.core.topic_events.effects import StartTopicTimer, Step

#: Prefix of the timer's keys.
EXPIRY_TIMER = "expiry"
#: A period is never longer: an eighth of the shortest lifetime that policies can give.
PERIOD_MS_MAX = 3_600_000
#: Producers of one entry; the next one follows soon.
EXPIRED_MAX = 2_000
CONTINUE_MS = 100
#: Producers that are put into lists in one tick after a takeover, some milliseconds.
_LISTED_AT_ONCE = 10_000


class ExpiryList:
    """Producers of one lifetime, and when each may expire at the earliest: both ascend."""

    def __init__(self) -> None:
        self._due_ms, self._ids = array("Q"), array("Q")
        self._start = 0

    def __len__(self) -> int:
        return len(self._ids) - self._start

    @property
    def first_due_ms(self) -> int:
        """There must be one."""
        return self._due_ms[self._start]

    def push(self, due_ms: int, pid: ProducerId) -> None:
        """At the end. A time before the last one becomes the last one: holding longer is always right."""
        self._due_ms.append(max(due_ms, self._due_ms[-1]) if len(self) else due_ms)
        self._ids.append(pid)

    def take(self, now_ms: int, count_max: int) -> list[ProducerId]:
        """Remove those that are due, the first ones first."""
        end = min(bisect_right(self._due_ms, now_ms, self._start), self._start + count_max)
        taken = [ProducerId(pid) for pid in self._ids[self._start : end]]
        self._start = end
        if self._start > len(self):
            del self._due_ms[: self._start], self._ids[: self._start]
            self._start = 0
        return taken


class Looks:
    """When to look at each connected producer next. Sessions begin in no order of these times, so they are a heap."""

    def __init__(self) -> None:
        self._due_ms: dict[ProducerId, int] = {}
        self._heap: list[tuple[int, ProducerId]] = []

    def set(self, pid: ProducerId, due_ms: int) -> None:
        """Instead of the time that was set before."""
        if self._due_ms.get(pid) != due_ms:
            self._due_ms[pid] = due_ms
            heappush(self._heap, (due_ms, pid))

    def due(self, now_ms: int) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def take(self, now_ms: int, count_max: int) -> list[ProducerId]:
        """Remove those that are due, the first ones first."""
        taken: list[ProducerId] = []
        while self.due(now_ms) and len(taken) < count_max:
            due_ms, pid = heappop(self._heap)
            if self._due_ms.get(pid) == due_ms:
                del self._due_ms[pid]
                taken.append(pid)
        return taken


@dataclass(frozen=True, slots=True)
class Presence:
    """connected: has a session. awaited: may come back after a takeover. left: whose sessions have ended; what is read
    from there is removed."""

    connected: Callable[[ProducerId], bool]
    awaited: Callable[[ProducerId], bool]
    left: dict[ProducerId, None]


class ProducerExpiry:
    """Of one topic at its owner, between a takeover and its end."""

    def __init__(self, step: Step, log: TopicLog, presence: Presence, lifetimes: ProducerLifetimes | None) -> None:
        self._step = step
        self._log = log
        self._presence = presence
        self._policy = lifetimes
        #: the log does not say yet what the policies say, and a producer depends on it; an entry of that is in flight
        self._policy_is_news = self._policy_in_flight = False
        self.expired_max = EXPIRED_MAX
        #: {lifetime: producers}
        self._lists: dict[int, ExpiryList] = {}
        #: those that are in no list yet
        self._unlisted: Iterator[ProducerId] = iter(list(log.table.state.producers))
        #: of those with a lifetime that are connected
        self._looks = Looks()
        #: those whose sessions have ended, and that the next entry may have to renew
        self._left: dict[ProducerId, None] = {}
        #: the period that runs, and how many there were; 0: none runs
        self._period_ms = 0
        self._periods = 0

    # --- who lives how long -------------------------------------------------------------------------------------------

    def lifetime_of(self, pid: ProducerId) -> int:
        """In ms. 0: for ever."""
        ages = self._log.table.state.producers.ages_of(pid)
        if ages is None:
            return 0
        return ages.lifetime_ms or self._log.table.state.lifetimes.of(assigned=self._is_assigned(pid))

    @property
    def new_lease_ms(self) -> int:
        """The lifetime of a lease that states none."""
        return lease_ms(LEASE_MS if self._policy is None else self._policy.lease_ms)

    def _is_assigned(self, pid: ProducerId) -> bool:
        return self._log.table.state.producers.name_of(pid) == assigned_name(pid)

    def _lives_since(self, pid: ProducerId, ages: Ages) -> int:
        """The time of the log from which its lifetime counts."""
        if ages.lifetime_ms:
            return ages.active_at_ms
        return max(ages.active_at_ms, self._log.table.state.lifetimes.since(assigned=self._is_assigned(pid)))

    def expires_in_ms(self, pid: ProducerId) -> int | None:
        """The least time, if the producer does nothing from now on. None: it lives for ever."""
        ages, lifetime_ms = self._log.table.state.producers.ages_of(pid), self.lifetime_of(pid)
        if ages is None or not lifetime_ms:
            return None
        return max(0, self._lives_since(pid, ages) + lifetime_ms - self._log.table.state.time_ms)

    def follow(self, lifetimes: ProducerLifetimes | None) -> None:
        """The policies have changed, or are known now."""
        if lifetimes != self._policy:
            self._policy = lifetimes
            self._list_all()

    def lifetimes_logged(self) -> None:
        """An entry that says what the policies say is durable."""
        self._policy_in_flight = False
        self._list_all()
        self.tick()

    def _list_all(self) -> None:
        """Anew, in the next ticks."""
        self._policy_is_news = False
        self._lists.clear()
        self._unlisted = iter(list(self._log.table.state.producers))

    def begins(self, lifetime_ms: int) -> None:
        """A lease of this length is handed to the log: a period that began before must not be longer than its
        eighth."""
        if lifetime_ms:
            self._shorten(lifetime_ms)

    def granted(self, pid: ProducerId) -> None:
        """The grant of a new producer, or of another lifetime, is durable."""
        self._list(pid)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def session_began(self, pid: ProducerId) -> None:
        """If need be, a renewal is in the log before anything that this session sends."""
        renewal = self._renewal(pid, self._log.time_ms) if self._log.open else None
        if renewal is not None:
            self._log.append_aged(ProducersAged(0, (renewal,)))
        self._look_later(pid, renewal, self._log.time_ms)

    def _renewal(self, pid: ProducerId, now_ms: int) -> Renewal | None:
        """Of its newest generation, if what the log knows of this producer is older than an eighth of its lifetime.
        What is in flight does not count, because it may never become durable."""
        ages, lifetime_ms = self._log.table.state.producers.ages_of(pid), self.lifetime_of(pid)
        if ages is None or not lifetime_ms or self._log.table.expires(pid):
            return None
        old = self._lives_since(pid, ages) + lifetime_ms // EIGHTHS < now_ms
        return Renewal(pid, self._log.table.generation_of(pid)[0]) if old else None

    def _look_later(self, pid: ProducerId, renewal: Renewal | None, now_ms: int) -> None:
        """At a connected producer, when what the log knows of it is old again. renewal: it was renewed now."""
        ages, lifetime_ms = self._log.table.state.producers.ages_of(pid), self.lifetime_of(pid)
        if ages is not None and lifetime_ms:
            since_ms = self._lives_since(pid, ages) if renewal is None else now_ms
            self._looks.set(pid, since_ms + lifetime_ms // EIGHTHS + 1)

    def _note_left(self) -> None:
        """Of the producers whose sessions have ended, keep those that the next entry may find old."""
        next_ms = self._log.time_ms + (self._period_ms or PERIOD_MS_MAX)
        self._left.update((pid, None) for pid in self._presence.left if self._renewal(pid, next_ms) is not None)
        self._presence.left.clear()

    def _renewed(self, now_ms: int) -> dict[ProducerId, Renewal]:
        """Those that an entry of this time must renew, because they have, or had, a session."""
        self._note_left()
        renewed: dict[ProducerId, Renewal] = {}
        for pid in list(islice(self._left, self.expired_max)):
            del self._left[pid]
            renewal = self._renewal(pid, now_ms)
            if renewal is not None:
                renewed[pid] = renewal
        for pid in self._looks.take(now_ms, self.expired_max - len(renewed)):
            if self._presence.connected(pid):
                renewal = self._renewal(pid, now_ms)
                if renewal is not None:
                    renewed[pid] = renewal
                self._look_later(pid, renewal, now_ms)
        return renewed

    # --- lists --------------------------------------------------------------------------------------------------------

    def _list(self, pid: ProducerId) -> None:
        ages, lifetime_ms = self._log.table.state.producers.ages_of(pid), self.lifetime_of(pid)
        if ages is None:
            return
        if not ages.lifetime_ms and self._is_news(assigned=self._is_assigned(pid)):
            self._policy_is_news = True
        if not lifetime_ms:
            return
        self._shorten(lifetime_ms)
        found = self._lists.get(lifetime_ms)
        if found is None:
            found = self._lists[lifetime_ms] = ExpiryList()
        found.push(self._lives_since(pid, ages) + lifetime_ms + lifetime_ms // EIGHTHS, pid)
        if self._presence.connected(pid):
            self._look_later(pid, None, self._log.time_ms)

    def _is_news(self, *, assigned: bool) -> bool:
        """Whether the log does not say yet what the policies say of such names."""
        logged_ms = self._log.table.state.lifetimes.of(assigned=assigned)
        return self._policy is not None and self._policy.of(assigned=assigned) != logged_ms

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Of the topic; no time passes by it."""
        for pid in islice(self._unlisted, _LISTED_AT_ONCE):
            self._list(pid)
        self._note_left()
        if not self._period_ms or (self._says_policy and self._period_ms > CONTINUE_MS):
            self._start_next()

    @property
    def _says_policy(self) -> bool:
        """The next entry says what the policies say, and nothing expires by it."""
        return self._policy_is_news and not self._policy_in_flight

    def _start_next(self) -> None:
        longest_ms = min([PERIOD_MS_MAX, *(lifetime_ms // EIGHTHS for lifetime_ms in self._lists)])
        if self._says_policy:
            self._start(min(CONTINUE_MS, longest_ms))
        elif self._lists:
            time_ms = self._log.time_ms
            overdue = self._looks.due(time_ms) or any(each.first_due_ms <= time_ms for each in self._lists.values())
            self._start(min(CONTINUE_MS, longest_ms) if overdue else longest_ms)

    def _shorten(self, lifetime_ms: int) -> None:
        period_ms = lifetime_ms // EIGHTHS
        if self._period_ms > period_ms:
            self._start(period_ms)  # what has passed of the other one does not count

    def _start(self, period_ms: int) -> None:
        self._periods += 1
        self._period_ms = period_ms
        self._step.emit(StartTopicTimer(self._key, self._period_ms))

    @property
    def _key(self) -> str:
        return f"{EXPIRY_TIMER} {self._periods}"

    def period_ended(self, key: str) -> None:
        """The timer has fired."""
        if key == self._key and self._period_ms:
            passed_ms, self._period_ms = self._period_ms, 0
            if self._log.open:
                self._age(passed_ms)
            self._start_next()

    def _say_policy(self, passed_ms: int, policy: ProducerLifetimes) -> None:
        self._policy_in_flight = True
        lifetimes = NameLifetimes(policy.assigned_ms, policy.chosen_ms)
        self._log.append_aged(ProducersAged(passed_ms, lifetimes=lifetimes))

    def _age(self, passed_ms: int) -> None:
        if self._policy is not None and self._says_policy:
            self._say_policy(passed_ms, self._policy)
            return
        state = self._log.table.state
        now_ms = self._log.time_ms + passed_ms
        policy_holds = self._policy is not None and not self._policy_is_news
        renewed = self._renewed(now_ms)
        expired: dict[ProducerId, None] = {}
        seen: set[ProducerId] = set()  # each lease of an id has put it into a list
        for lifetime_ms, each in list(self._lists.items()):
            for pid in each.take(now_ms, self.expired_max - len(expired) - len(renewed)):
                ages = state.producers.ages_of(pid)
                if ages is None or pid in seen or self.lifetime_of(pid) != lifetime_ms:
                    continue
                seen.add(pid)
                due_ms = self._lives_since(pid, ages) + lifetime_ms + lifetime_ms // EIGHTHS
                if due_ms > now_ms:
                    each.push(due_ms, pid)
                elif pid in renewed:
                    each.push(now_ms + lifetime_ms + lifetime_ms // EIGHTHS, pid)
                elif not self._log.table.settled(pid) or not (ages.lifetime_ms or policy_holds):
                    each.push(now_ms + lifetime_ms, pid)
                elif self._presence.connected(pid) or self._presence.awaited(pid) or pid in self._left:
                    renewed[pid] = Renewal(pid, state.producers[pid].generation)
                    each.push(now_ms + lifetime_ms + lifetime_ms // EIGHTHS, pid)
                else:
                    expired[pid] = None
            if not each:
                del self._lists[lifetime_ms]
        self._log.append_aged(ProducersAged(passed_ms, tuple(renewed.values()), tuple(expired)))

    def failed(self, aged: ProducersAged) -> None:
        """This entry was dropped with its ledger."""
        if aged.lifetimes is not None:
            self._policy_in_flight = False
        for pid in aged.expired:
            self._list(pid)
