"""The bytes of each message of the streams between clients and owners stay what they are, and give back what was sent.

`encoded_messages.txt` has a line for each message of `messages.py`: its name, and its bytes in hexadecimal digits.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import OncelogError
from oncelog.rpc.codecs.owner_codec import PublishAnswers
from tests.contract.rpc.messages import Message, messages

MESSAGES = list(messages())
ENCODED = dict(
    line.split(" ") for line in (Path(__file__).parent / "encoded_messages.txt").read_text("utf-8").splitlines()
)


def _plain(value: Any) -> Any:
    """Frames arrive as other classes with the same fields, their buffers as slices; errors are equal when their types,
    messages and details are."""
    if isinstance(value, OncelogError):
        return type(value), value.message, value.details
    if isinstance(value, PublishAnswers):
        by_session: dict[int, list[Any]] = {}
        for answer in value.answers:
            by_session.setdefault(answer.session, []).append((answer.request, answer.result))
        return _plain((by_session, *value[1:]))
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return type(value), [_plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.compare]
    return value


@pytest.mark.parametrize("message", MESSAGES, ids=[message.name for message in MESSAGES])
def test_each_message_keeps_its_bytes_and_its_fields(message: Message) -> None:
    """Absent fields stay absent, and zeros stay zeros."""
    data = message.encode(message.sent)
    assert data.hex() == ENCODED[message.name]
    assert _plain(message.decode(data)) == _plain(message.sent)


def test_each_line_of_the_encodings_is_a_message() -> None:
    """A message that is gone leaves no line."""
    assert list(ENCODED) == [message.name for message in MESSAGES]


def test_messages_of_one_frame_keep_their_order() -> None:
    """Each delivery gets its own entries, and each event the epoch of its owner."""
    for kind in ("request", "event"):
        frames = [message for message in MESSAGES if message.name.startswith(f"{kind}-")]
        sent = [frame.sent[0] for frame in frames]
        assert _plain(frames[0].decode(frames[0].encode(sent))) == _plain(sent)
