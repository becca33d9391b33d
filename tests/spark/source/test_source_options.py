"""The options of the source, errors for wrong ones, and the connection options that reading and writing share."""

from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.names import KAFKA_GROUPS, parse_namespace
from oncelog_spark.options import NAMES, GivenOptions, connection_options
from oncelog_spark.sink.names import journal_topic, stage_topic
from oncelog_spark.sink.options import sink_options
from oncelog_spark.source.options import SourceOptions, TopicPattern, source_options
from oncelog_spark.source.positions import AtTime, ByTopic, Edge


def read(streaming: bool = False, **options: str) -> SourceOptions:
    return source_options(options, {}, streaming=streaming)


def test_the_topic_is_the_only_required_option() -> None:
    """Everything is read, one task for each topic, and a loss is an error."""
    options = read(topic="flights")
    assert options.topics == ("public/default/flights",)
    assert (options.starting, options.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert (options.rows_max, options.rows_per_partition) == (None, None)
    assert options.fail_on_data_loss
    assert options.closed_from_storage
    assert options.connection.url == "oncelog://127.0.0.1:6650"


def test_options_that_spark_drops_are_explained() -> None:
    """It keeps none of `create table … using oncelog options (…)`: the format is asked without any."""
    with pytest.raises(InvalidArgument, match=r"none is set\. No option was given: Spark keeps no options of a table"):
        source_options({}, {}, streaming=False)
    with pytest.raises(InvalidArgument, match="No option was given: Spark keeps no options of a table"):
        sink_options({}, {}, streaming=False)


def test_every_option_is_read() -> None:
    """Names are case-insensitive, as in Spark."""
    options = source_options(
        {
            "TOPICS": " b, a ,b",
            "startingposition": '{"a": 3, "b": "latest"}',
            "maxRowsPerBatch": "1000",
            "rowsPerPartition": "10",
            "failOnDataLoss": "FALSE",
            "closedLedgers": "owner",
            "onCorrupt": "Skip",
            "onEncrypted": "pass",
            "serviceUrl": "oncelog://10.0.0.1,10.0.0.2:7000",
        },
        {},
        streaming=True,
    )
    assert options.topics == ("public/default/a", "public/default/b")
    assert options.starting == ByTopic({"public/default/a": 3, "public/default/b": Edge.LATEST})
    assert (options.rows_max, options.rows_per_partition) == (1000, 10)
    assert not options.fail_on_data_loss
    assert not options.closed_from_storage
    assert options.skip_corrupt
    assert options.passes_encrypted
    assert options.connection.addresses == ("10.0.0.1:6650", "10.0.0.2:7000")
    assert read(topic="a", endingPosition="5").ending == AtTime(5)


@pytest.mark.parametrize(
    ("expression", "visible", "hidden"),
    [
        (".*", True, False),
        ("[_a-z.]+.*", True, False),
        ("(__sink)?.*", True, False),
        (r"__sink\..*", False, True),
        ("^__sink[.]flights.*", False, True),
    ],
)
def test_hidden_topics_match_only_an_expression_that_begins_with_their_prefix(
    expression: str, visible: bool, hidden: bool
) -> None:
    """A query over all topics that read the sink's journals and staged rows would read its own output, for ever."""
    pattern = TopicPattern(parse_namespace("public/default"), expression)
    assert pattern.matches("public/default/flights") is visible
    assert pattern.matches(journal_topic("public/default/flights", "p")) is hidden
    assert pattern.matches(stage_topic("public/default/flights", "p", "query q", 3)) is hidden


@pytest.mark.parametrize(("expression", "matches"), [(".*", False), ("_.*", False), ("^__oncelog_kafka.*", True)])
def test_topics_of_doors_match_only_an_expression_that_begins_with_their_prefix(expression: str, matches: bool) -> None:
    """Only superusers read them, so a query over all topics of a role would fail."""
    pattern = TopicPattern(parse_namespace("public/default"), expression)
    assert pattern.matches(f"public/default/{KAFKA_GROUPS}") is matches


def test_a_name_that_only_resembles_hidden_ones_is_a_topic() -> None:
    """The dot belongs to the prefix."""
    assert TopicPattern(parse_namespace("public/default"), ".*").matches("public/default/__sinks")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "set one of the options topic, topics, topicsPattern: none"),
        ({"topic": "a", "topics": "b"}, "topic and topics are set"),
        ({"topic": " "}, "topic is empty"),
        ({"topic": "a,b"}, "option topic"),
        ({"topics": "a,,b"}, "option topics"),
        ({"topicsPattern": "("}, "not a regular expression"),
        ({"topicsPattern": "a/b/c/d"}, "topicsPattern"),
        ({"topicsPattern": "x" * 1001}, "1000 characters"),
        ({"topic": "a", "startPosition": "latest"}, "unknown option startPosition; .*startingPosition"),
        ({"topic": "a", "maxRows": "5"}, "unknown option maxRows; .*maxRowsPerBatch"),
        ({"topic": "a", "endingPosition": "earliest"}, "cannot be earliest"),
        ({"topic": "a", "maxRowsPerBatch": "5"}, "is for streams"),
        ({"topic": "a", "rowsPerPartition": "0"}, "1 to "),
        ({"topic": "a", "rowsPerPartition": "1e3"}, "1 to "),
        ({"topic": "a", "failOnDataLoss": "no"}, "true or false"),
        ({"topic": "a", "closedLedgers": "both"}, "storage, owner"),
        ({"topic": "a", "onCorrupt": "ignore"}, "raise, skip"),
        ({"topic": "a", "onEncrypted": "skip"}, "raise, pass"),
        ({"topic": "a", "serviceUrl": "http://x"}, "url must be oncelog"),
        ({"topic": "a", "tokenFile": "/does/not/exist"}, "exist"),
        ({"topic": "a", "tlsCaFile": "/x"}, "TLS"),
    ],
)
def test_wrong_options_are_refused_before_the_cluster_is_contacted(options: dict[str, str], said: str) -> None:
    """With the name of the option; an option must never be silently ignored."""
    with pytest.raises(InvalidArgument, match=said):
        source_options(options, {}, streaming=False)


def test_a_stream_has_no_end() -> None:
    """The option would have no effect."""
    with pytest.raises(InvalidArgument, match="batch reads"):
        read(streaming=True, topic="a", endingPosition="latest")


def test_a_pattern_is_of_one_namespace_and_of_whole_names() -> None:
    """So `a` does not match `ba`, and topics of other namespaces are not read by accident."""
    found = read(topicsPattern="flights-[0-9]+").topics
    assert found == TopicPattern(parse_namespace("public/default"), "flights-[0-9]+")
    assert [found.matches(f"public/default/{name}") for name in ("flights-7", "flights-7b", "my-flights-7")] == [
        True, False, False,
    ]  # fmt: skip
    assert read(topicsPattern="a/b/.*").topics == TopicPattern(parse_namespace("a/b"), ".*")


def test_environment_variables_are_the_connections_defaults(tmp_path: Path) -> None:
    """As for the command line; options take precedence."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    environment = {"ONCELOG_URL": "oncelog://127.0.0.1:7000", "ONCELOG_TOKEN_FILE": str(token)}
    found = connection_options(GivenOptions({}, NAMES), environment)
    assert (found.url, found.token) == ("oncelog://127.0.0.1:7000", token)
    assert (
        connection_options(GivenOptions({"serviceUrl": "oncelog://localhost"}, NAMES), environment).url
        == "oncelog://localhost"
    )
    with pytest.raises(InvalidArgument, match="plain text"):
        connection_options(GivenOptions({"serviceUrl": "oncelog://10.0.0.1"}, NAMES), environment)
    allowed = GivenOptions({"serviceUrl": "oncelog://10.0.0.1", "allowPlaintextToken": "true"}, NAMES)
    assert connection_options(allowed, environment).plaintext_token_allowed


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("subscribe", "use topic, or topics"),
        ("subscribePattern", "use topicsPattern"),
        ("kafka.bootstrap.servers", "use serviceUrl"),
        ("startingOffsets", "use startingPosition"),
        ("maxOffsetsPerTrigger", "use maxRowsPerBatch, or maxBytesPerBatch"),
        ("minPartitions", "use rowsPerPartition"),
        ("kafka.sasl.mechanism", "use tokenFile"),
        ("kafka.group.id", "only the checkpoint"),
        ("kafka.fetch.min.bytes", "leave it out"),
    ],
)
def test_kafka_options_name_the_option_to_use(option: str, said: str) -> None:
    """A query can be moved from Kafka by following the errors; any other unknown name is a misspelling."""
    with pytest.raises(
        InvalidArgument, match=f"option {option} belongs to Spark's Kafka connector; .*{said}"
    ) as raised:
        source_options({"topic": "a", option: "x"}, {}, streaming=False)
    assert raised.value.details["field"] == option
    with pytest.raises(InvalidArgument, match="Kafka connector"):
        sink_options({"topic": "a", "producerPrefix": "p", "kafka.bootstrap.servers": "x"}, {}, streaming=True)


def test_columns_are_chosen_by_name() -> None:
    """In the order of a row's columns."""
    assert read(topic="a", columns=" value, index").columns == ("value", "index")
    assert read(topic="a").columns is None
    for wrong, said in (
        ("valeu", "names 'valeu', which is not a column; the columns are key, value"),
        ("key,key", "twice"),
        ("", "names ''"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            read(topic="a", columns=wrong)


def test_limit_by_bytes_is_for_streams() -> None:
    """As the limit by rows."""
    assert read(True, topic="a", maxBytesPerBatch="100").bytes_max == 100
    with pytest.raises(InvalidArgument, match="maxBytesPerBatch is for streams"):
        read(topic="a", maxBytesPerBatch="100")


@pytest.mark.parametrize("url", ["oncelog+proxy://127.0.0.1:6650", "oncelog+proxy+tls://logs.example:443"])
def test_a_url_of_gateways_is_refused_with_the_reason(url: str) -> None:
    """Spark connects to owners and storage nodes itself; it could look topics up, and then reach none of them."""
    with pytest.raises(InvalidArgument, match=r"Run it where their addresses can be reached, with oncelog://"):
        read(topic="flights", serviceUrl=url)
