"""The options startingPosition and endingPosition."""

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import TopicId
from oncelog_spark.source.offsets import TopicState
from oncelog_spark.source.positions import AtTime, ByTopic, Edge, check_named, number_at, parse_position

FLIGHTS, PART = "public/default/flights", "public/default/parts-partition-1"
OPTION = "startingPosition"


def state(topic: str) -> TopicState:
    return TopicState(topic, TopicId("1" * 32), 5, 20)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Edge.EARLIEST),
        (" Latest ", Edge.LATEST),
        ("1767225600000", AtTime(1_767_225_600_000)),
        ("0", AtTime(0)),
        ('{"flights": 7}', ByTopic({FLIGHTS: 7})),
        ('{"a/b/c": "LATEST", "flights": "earliest"}', ByTopic({"a/b/c": Edge.LATEST, FLIGHTS: Edge.EARLIEST})),
    ],
)
def test_a_position_is_parsed(text: str, place: object) -> None:
    """An edge, a time, or JSON by topic."""
    assert parse_position(OPTION, text) == place


@pytest.mark.parametrize(
    "text",
    ["", "first", "-1", "1.5", "99999999999999999", "{}", "[]", "{", '{"flights": -1}', '{"flights": true}',
     '{"flights": "end"}', '{"a/b": 1}', '{"flights": null}', '{"flights": 9223372036854775808}'],
)  # fmt: skip
def test_a_wrong_position_is_refused_with_the_options_name(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(InvalidArgument, match=OPTION) as told:
        parse_position(OPTION, text)
    assert told.value.details["field"] == OPTION


def test_a_position_is_a_number_in_each_topic() -> None:
    """Edges are those of the topic; a number stands for itself."""
    assert number_at(OPTION, Edge.EARLIEST, state(FLIGHTS)) == 5
    assert number_at(OPTION, Edge.LATEST, state(FLIGHTS)) == 20
    assert number_at(OPTION, ByTopic({FLIGHTS: 20}), state(FLIGHTS)) == 20
    assert number_at(OPTION, ByTopic({FLIGHTS: 0}), state(FLIGHTS)) == 0, "that it is trimmed is judged later"


def test_a_partitioned_topic_takes_an_edge_as_a_whole_and_numbers_by_partition() -> None:
    """One number for several logs would have no meaning."""
    whole = "public/default/parts"
    assert number_at(OPTION, ByTopic({whole: Edge.LATEST}), state(PART)) == 20
    assert number_at(OPTION, ByTopic({whole: Edge.LATEST, PART: 6}), state(PART)) == 6
    with pytest.raises(InvalidArgument, match="parts-partition-1"):
        number_at(OPTION, ByTopic({whole: 6}), state(PART))


@pytest.mark.parametrize(
    ("place", "said"), [(ByTopic({PART: 1}), "has no entry for topic"), (ByTopic({FLIGHTS: 21}), "21")]
)
def test_a_topic_left_out_and_a_number_beyond_the_end_are_refused(place: ByTopic, said: str) -> None:
    """A query that begins behind the end would silently skip the messages that are stored until then."""
    with pytest.raises(InvalidArgument, match=said):
        number_at(OPTION, place, state(FLIGHTS))


def test_a_topic_that_is_not_read_is_refused() -> None:
    """It is misspelt."""
    check_named(OPTION, ByTopic({FLIGHTS: 1, "public/default/parts": Edge.LATEST}), [FLIGHTS, PART])
    check_named(OPTION, Edge.LATEST, [])
    with pytest.raises(InvalidArgument, match="fligths"):
        check_named(OPTION, ByTopic({"public/default/fligths": 1}), [FLIGHTS])
