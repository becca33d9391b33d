"""The bytes of each message of the streams between clients and owners stay what they are, and give back what was sent.

`encoded_messages.txt` has a line for each message of `messages.py`: its name, and its bytes in hexadecimal digits.
"""

import dataclasses
from pathlib import Path
from typing import Any, get_args

import pytest

from oncelog.core.delivery.events import AnswerSubscribe, ConsumerActive, ConsumerDetached, EndConsumer
from oncelog.core.errors import Fatal, OncelogError
from oncelog.rpc.codecs import consumer_codec, owner_codec
from oncelog.rpc.codecs.consumer_codec import ConsumerReport, ConsumerRequest
from oncelog.rpc.codecs.layout import Field, Layout
from oncelog.rpc.codecs.owner_codec import PublishAnswers
from oncelog.wire import consumer_pb2, owner_pb2
from tests.contract.rpc.messages import REPORTS, REQUESTS, Message, messages

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


def test_each_kind_of_request_and_event_is_a_message() -> None:
    """A kind without a row would only fail when it is sent."""
    kinds = {type(each) for each in REQUESTS}, {type(each) for each in REPORTS}
    assert kinds == (set(get_args(ConsumerRequest)), set(get_args(ConsumerReport)))


@pytest.mark.parametrize(
    ("value", "differing"),
    [
        (ConsumerActive, {}),
        (ConsumerDetached, {"absent": Field("gone")}),
        (ConsumerDetached, {"consumer": Field("number")}),
    ],
    ids=["too few", "none of the value", "none of the message"],
)
def test_a_row_has_the_fields_of_both_sides(value: type, differing: dict[str, Field]) -> None:
    """A field that one side gets, and its row does not have, would not be sent."""
    with pytest.raises(TypeError, match="the fields of"):
        Layout(value, consumer_pb2.DetachConsumer, part=False, local=(), given={}, **differing)


def test_an_error_without_its_fields_is_an_error() -> None:
    """A peer that says that it refuses, and not why, has refused."""
    events = consumer_pb2.ConsumerEvents(
        events=[
            consumer_pb2.ConsumerEvent(refused=consumer_pb2.SubscribeRefused(call=1)),
            consumer_pb2.ConsumerEvent(ended=consumer_pb2.ConsumerEnded(consumer=2)),
        ]
    )
    refused, ended = (each.report for each in consumer_codec.decode_consumer_events(events.SerializeToString()))
    answers = owner_pb2.PublishAnswers(refused=[owner_pb2.OpenRefused(open_id=1)])
    (denied,) = owner_codec.decode_publish_answers(answers.SerializeToString()).denied
    assert isinstance(refused, AnswerSubscribe)
    assert isinstance(ended, EndConsumer)
    assert [type(error) for error in (refused.result, ended.error, denied.error)] == [Fatal] * 3


def test_messages_of_one_frame_keep_their_order() -> None:
    """Each delivery gets its own entries, and each event the epoch of its owner."""
    for kind in ("request", "event"):
        frames = [message for message in MESSAGES if message.name.startswith(f"{kind}-")]
        sent = [frame.sent[0] for frame in frames]
        assert _plain(frames[0].decode(frames[0].encode(sent))) == _plain(sent)
