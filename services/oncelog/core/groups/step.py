"""The event that a coordinator handles: its time, its effects so far, and the calls that have no answer yet."""

from dataclasses import dataclass, field

from oncelog.core.errors import InvariantViolated
from oncelog.core.groups.answers import GroupAnswer
from oncelog.core.groups.events import Answer, GroupEffect


@dataclass(slots=True)
class Step:
    """Shared by all groups of one coordinator. now_ms: of the coordinator's clock. bytes_left: of its limit."""

    now_ms: int = 0
    bytes_left: int = 0
    effects: list[GroupEffect] = field(default_factory=list)
    #: {call without an answer: its group}
    waiting: dict[int, str] = field(default_factory=dict)

    def ask(self, call: int, group: str) -> None:
        """The call needs an answer."""
        if call in self.waiting:
            raise InvariantViolated(f"call {call} is in use")
        self.waiting[call] = group

    def answer(self, call: int, answer: GroupAnswer) -> None:
        if self.waiting.pop(call, None) is None:
            raise InvariantViolated(f"call {call} is answered twice, or was never asked")
        self.effects.append(Answer(call, answer))

    def take(self) -> list[GroupEffect]:
        """The effects of the step, which is over."""
        taken = self.effects.copy()
        self.effects.clear()
        return taken
