"""What is not offered is declined, in the form that each request has."""

import pytest

from oncelog_doors.pulsar.commands import NAMES, command
from oncelog_doors.pulsar.frames import FrameReader, frame_of, limits_after_connect
from oncelog_doors.pulsar.not_offered import declined, is_not_offered
from oncelog_doors.wire.pulsar_commands_pb2 import Command, NotOffered
from tests.doors.pulsar.bytes_of_clients import command as command_bytes
from tests.doors.pulsar.bytes_of_clients import frame

#: {type of a request: (type of its answer, number of the code in it, number of the sentence)}, as Pulsar has them
ANSWERS = {
    50: (51, 4, 5), 52: (53, 4, 5), 54: (55, 4, 5), 56: (57, 4, 5), 58: (59, 4, 5), 60: (61, 4, 5), 62: (63, 2, 3),
    64: (14, 2, 3), 67: (14, 2, 3), 70: (71, 3, 4), 73: (74, 2, 3), 76: (77, 4, 5), 79: (80, 3, 4),
}  # fmt: skip
UNANSWERED = (72, 78, 81)


def request(kind: int) -> tuple[str, NotOffered]:
    """As a client sends it, with fields that are not read here."""
    reader = FrameReader(limits_after_connect(1024))
    reader.feed(frame(command_bytes(kind, (1, 41), (2, 9), (4, b"x"))))
    found = reader.read()
    assert found is not None
    wanted = getattr(found.command, NAMES[kind])
    assert isinstance(wanted, NotOffered)
    return found.name, wanted


@pytest.mark.hazard("transactions-retried-for-ever")
@pytest.mark.parametrize("kind", ANSWERS)
def test_request_is_declined_with_22(kind: int) -> None:
    """With any other code, a client of transactions asks again for ever."""
    answer, code, sentence = ANSWERS[kind]
    reply = declined(*request(kind))
    assert reply is not None
    message = getattr(reply, NAMES[answer]).message
    assert "not offered here" in message
    assert frame_of(reply) == frame(command_bytes(answer, (1, 41), (code, 22), (sentence, message.encode())))


@pytest.mark.parametrize("kind", UNANSWERED)
def test_end_of_nothing_has_no_answer(kind: int) -> None:
    """It has none in Pulsar either."""
    assert declined(*request(kind)) is None


def test_every_such_request_is_known() -> None:
    """And no other command is one."""
    assert {kind for kind, name in NAMES.items() if is_not_offered(name)} == {*ANSWERS, *UNANSWERED}
    assert not is_not_offered("unknown")


def test_answer_names_what_is_not_offered() -> None:
    """A reader of the log need not know Pulsar's commands."""
    subjects = {"new_txn": "transactions", "watch_topics": "watchers", "scalable_lookup": "scalable topics",
                "watch_scalable_topics": "scalable topics", "watch_coordinators": "transactions"}  # fmt: skip
    for name, subject in subjects.items():
        reply = declined(name, NotOffered(id=1))
        assert isinstance(reply, Command)
        assert subject in str(reply)
    assert command(new_txn=NotOffered(id=1)).type == 50
