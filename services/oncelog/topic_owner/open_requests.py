"""Which requests to open a publish stream has under way, and how one of them is withdrawn."""

from oncelog.topic_owner.topic_runner import TopicRunner


class OpenRequests:
    """The requests to open of one stream that are not answered, by the topic's call and by the client's open id."""

    def __init__(self) -> None:
        #: {call: (open id, the topic that was asked, None before that)}
        self._of_call: dict[int, tuple[int, TopicRunner | None]] = {}
        self._calls: dict[int, int] = {}

    def add(self, call: int, open_id: int) -> None:
        self._of_call[call] = (open_id, None)
        self._calls[open_id] = call

    def asked(self, call: int, runner: TopicRunner) -> bool:
        """The topic is asked now. Returns False when the client has withdrawn the request before."""
        open_id, _ = self._of_call.get(call, (None, None))
        if open_id is None:
            return False
        self._of_call[call] = (open_id, runner)
        return True

    def pop(self, call: int) -> int | None:
        """The open id of a request that is answered; None: it was withdrawn."""
        open_id, _ = self._of_call.pop(call, (None, None))
        if open_id is not None and self._calls.get(open_id) == call:
            del self._calls[open_id]
        return open_id

    def cancel(self, open_id: int) -> None:
        """The client has withdrawn the request; one that is answered already, or never came, is passed over."""
        call = self._calls.pop(open_id, None)
        if call is None:
            return
        _, runner = self._of_call.pop(call)
        if runner is not None:
            runner.abandon(call)

    def cancel_all(self) -> None:
        for open_id in list(self._calls):
            self.cancel(open_id)
