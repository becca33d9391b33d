"""Where the explorations begin, and the variants of the design that lack a rule."""

from dataclasses import dataclass, replace

from tests.model.explorer import Scenario
from tests.model.state import Budget, Ledger, Node, Reader, Record, Recoverer, Repairer, Rules, State

_WRITTEN = State(Record(Ledger.OPEN, (0, 1, 2)), (Node(),) * 3, confirmed=(0,), recoverers=(Recoverer(),))
_TWO_ENTRIES = _WRITTEN._replace(confirmed=(0, 0))

_HOLDS, _LACKS, _SPARE = Node(holds=1, fenced=True), Node(fenced=True), Node()
#: Entry 0 is acknowledged by members 0 and 1; member 2 lacks it. Node 3 is no member.
_CLOSED = State(
    Record(Ledger.CLOSED, (0, 1, 2), end=0), (_HOLDS, _HOLDS, _LACKS, _SPARE), confirmed=(3,), repairers=(Repairer(),)
)
_WHOLE = _CLOSED._replace(record=_CLOSED.record._replace(whole=True), nodes=(_HOLDS, _HOLDS, _HOLDS, _SPARE))
#: Members 1 and 2 were replaced by 3 and 4, and hold their copies still.
_REPLACED = State(
    Record(Ledger.CLOSED, (0, 3, 4), end=0, whole=True),
    (_HOLDS, _HOLDS, _HOLDS, Node(holds=1), Node(holds=1)),
    confirmed=(3,),
    repairers=(Repairer(),),
)
_ERASED = Node(fenced=True, erased=True)
_TWO = (Repairer(), Repairer())

RECOVERY = Scenario("two recoveries", _WRITTEN._replace(recoverers=(Recoverer(), Recoverer())))
RESTART = Scenario("two entries, a restart", _TWO_ENTRIES._replace(budget=Budget(restarts=1)))
WIPE = Scenario("recovery, a wiped directory", _WRITTEN._replace(budget=Budget(wipes=1)))
DAMAGE = Scenario("two entries, damage", _TWO_ENTRIES._replace(budget=Budget(damages=1)))
REPAIR = Scenario("two repairers, a wiped directory", _CLOSED._replace(budget=Budget(wipes=1), repairers=_TWO))
HOLES = Scenario(
    "entries with holes, a wiped directory",
    State(
        Record(Ledger.CLOSED, (0, 1, 2), end=1),
        (Node(holds=3, fenced=True), Node(holds=1, fenced=True), Node(holds=2, fenced=True), _SPARE),
        confirmed=(3, 5),
        repairers=(Repairer(),),
        budget=Budget(wipes=1),
    ),
)
ABSENT = Scenario("repair of a ledger with an absent member", _CLOSED._replace(budget=Budget(down=1)))
WHOLE = Scenario("repair of a whole ledger with an absent member", _WHOLE._replace(budget=Budget(down=1)))
SPARES = Scenario(
    "two repairers, two spare nodes, an absent member",
    _CLOSED._replace(nodes=(*_CLOSED.nodes, _SPARE), repairers=_TWO, budget=Budget(down=1)),
)
LATE = Scenario(
    "a repairer that wakes late",
    _WHOLE._replace(repairers=_TWO, budget=Budget(down=1)),
    after=(
        "repair 0 looks",
        "0 is down",
        "repair 0 lets 3 join",
        "entry 0 is copied to 3",
        "3 attests to repair 0",
        "0 is back",
        "repair 1 looks",
    ),
)
LOST = Scenario("losses: wiped and damaged", _CLOSED._replace(budget=Budget(wipes=1, damages=1)), proves_losses=True)
SILENT = Scenario("losses: wiped and absent", _CLOSED._replace(budget=Budget(wipes=1, down=1)), proves_losses=True)
RESTORED = Scenario(
    "a restored record",
    _REPLACED._replace(recoverers=(Recoverer(),), repairers=(), budget=Budget(restores=1, down=1)),
    restored=Record(Ledger.IN_RECOVERY, (0, 1, 2)),
)
READER = Scenario(
    "a reader with an old record",
    _REPLACED._replace(
        nodes=(_HOLDS, _ERASED, _ERASED, Node(holds=1), Node(holds=1)),
        reader=Reader(_CLOSED.record, fresh=False),
        budget=Budget(damages=1),
    ),
)
REJOINED = Scenario(
    "members that were erased join again",
    State(
        Record(Ledger.CLOSED, (2, 3, 4), end=0, whole=True),
        (_HOLDS, _HOLDS, _HOLDS, Node(holds=1), Node(holds=1)),
        confirmed=(3, 0),
        repairers=(Repairer(),),
        budget=Budget(down=2),
    ),
    after=(
        "0 may erase",
        "0 claims the record for erasing",
        "0 erases",
        "1 may erase",
        "1 claims the record for erasing",
        "1 erases",
        "repair 0 looks",
        "3 is down",
        "repair 0 lets 0 join",
        "entry 0 is copied to 0",
        "0 attests to repair 0",
        "repair 0 swaps 3 for 0",
        "4 is down",
        "repair 0 lets 1 join",
    ),
)
#: For walks: everything at once.
LIFE = Scenario(
    "the whole life of a ledger",
    State(
        Record(Ledger.OPEN, (0, 1, 2)),
        (Node(),) * 5,
        confirmed=(0, 0),
        recoverers=(Recoverer(), Recoverer()),
        repairers=_TWO,
        budget=Budget(wipes=1, damages=2, restarts=2, down=2),
    ),
    proves_losses=True,
)

#: How many states of each scenario the tests explore; fewer if there are no more. It is more than any broken variant of
#: the scenario needs.
CLEAN = {
    RECOVERY: 30_000,
    RESTART: 30_000,
    WIPE: 10_000,
    DAMAGE: 70_000,
    REPAIR: 20_000,
    HOLES: 10_000,
    ABSENT: 20_000,
    WHOLE: 20_000,
    SPARES: 20_000,
    LATE: 25_000,
    LOST: 25_000,
    SILENT: 35_000,
    RESTORED: 5_000,
    READER: 10_000,
    REJOINED: 10_000,
}
STATES_MAX = 60_000
WALKS, WALK_LENGTH = 150, 150


@dataclass(frozen=True, slots=True)
class Broken:
    """A variant without these rules. It breaks a promise in this scenario."""

    name: str
    scenario: Scenario
    without: tuple[str, ...]

    @property
    def rules(self) -> Rules:
        return replace(Rules(), **dict.fromkeys(self.without, False))


BROKEN_RECOVERY = (
    Broken("recovery reads do not fence", RECOVERY, ("recovery_reads_fence",)),
    Broken("the end is declared on one negative", RECOVERY, ("end_needs_coverage",)),
    Broken("a write-back is accepted at one OK", RECOVERY, ("write_back_needs_quorum",)),
    Broken("a restarted node forgets its fence", RESTART, ("fence_survives_restart",)),
)
BROKEN_IDENTITY = (Broken("a wiped node answers for its former self", WIPE, ("wiped_node_is_another",)),)
BROKEN_JOINING = (
    Broken("a copy without `joining`, erased after a read", WHOLE, ("joining_is_recorded", "erasing_needs_claim")),
    Broken("a node erases after a read", WHOLE, ("erasing_needs_claim",)),
    Broken("a node that erases takes calls", WHOLE, ("erasing_refuses_calls",)),
)
BROKEN_WHOLE = (Broken("a copy is erased before the ledger is whole", ABSENT, ("erasing_needs_whole",)),)
BROKEN_COPIES = (Broken("a hole is copied", HOLES, ("copies_every_entry",)),)
BROKEN_SWAPS = (Broken("a swap does not name the record's version", LATE, ("swap_names_version",)),)
BROKEN_ERASED = (
    Broken("erased answers missing", RESTORED, ("erased_proves_nothing",)),
    Broken("the fence goes with the erased copy", REJOINED, ("tombstone_keeps_fence",)),
    Broken("a reader believes refusals by an old record", READER, ("reader_reads_again",)),
)
BROKEN_LIMBO = (
    Broken("a damaged node answers missing", DAMAGE, ("damage_is_limbo",)),
    Broken("a damaged node takes ordinary adds", DAMAGE, ("limbo_refuses_adds",)),
    Broken("limbo ends without a fence", DAMAGE, ("limbo_ends_with_fence",)),
)
BROKEN_LOSSES = (
    Broken("lost is written while a member is silent", SILENT, ("lost_needs_answers",)),
    Broken("lost is written after one round of questions", LOST, ("lost_is_asked_twice",)),
)
BROKEN = (
    *BROKEN_RECOVERY,
    *BROKEN_IDENTITY,
    *BROKEN_JOINING,
    *BROKEN_WHOLE,
    *BROKEN_COPIES,
    *BROKEN_SWAPS,
    *BROKEN_ERASED,
    *BROKEN_LIMBO,
    *BROKEN_LOSSES,
)
