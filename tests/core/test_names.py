"""core/names: legal names, and the errors for illegal ones."""

import pytest

from oncelog.core.errors import InvalidName
from oncelog.core.names import (
    NamespaceName,
    TopicName,
    check_partitions,
    check_producer_name,
    parse_namespace,
    parse_topic,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flights", TopicName("public", "default", "flights")),
        ("air/eu/flights", TopicName("air", "eu", "flights")),
        ("persistent://air/eu/flights", TopicName("air", "eu", "flights")),
        ("persistent://flights", TopicName("public", "default", "flights")),
        ("flights-partition-0", TopicName("public", "default", "flights", 0)),
        ("a/b/c-partition-12", TopicName("a", "b", "c", 12)),
        ("flights-partition-007", TopicName("public", "default", "flights-partition-007")),
        ("-partition-1", TopicName("public", "default", "-partition-1")),
        ("x-partition-99999999999", TopicName("public", "default", "x-partition-99999999999")),
        ("a=b:c.d_e-f", TopicName("public", "default", "a=b:c.d_e-f")),
    ],
)
def test_every_accepted_form_is_read(text: str, expected: TopicName) -> None:
    """Short forms stand for public/default; only a suffix without leading zeros is a part, so names round-trip."""
    assert parse_topic(text) == expected


@pytest.mark.parametrize("text", ["flights", "a/b/c", "a/b/c-partition-3", "x-partition-01"])
def test_a_name_round_trips(text: str) -> None:
    """str() gives the full form, and that reads back as the same topic."""
    name = parse_topic(text)
    assert parse_topic(str(name)) == name


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "topic"),
        ("a/b", "topic"),
        ("a/b/c/d", "topic"),
        ("/" * 1_000_000, "topic"),
        ("a//c", "namespace"),
        ("/b/c", "tenant"),
        ("x" * 256, "topic"),
        ("x" * 1000, "topic"),
        ("tab\there", "topic"),
        ("nul\x00", "topic"),
        ("space here", "topic"),
        ("flüge", "topic"),
        ("line\n", "topic"),
        (".", "topic"),
        ("a/../c", "namespace"),
        ("http://a/b/c", "topic"),
    ],
)
def test_an_illegal_topic_name_is_refused_by_field(text: str, field: str) -> None:
    """The error names the element that is wrong and shows no raw control character."""
    with pytest.raises(InvalidName) as caught:
        parse_topic(text)
    assert caught.value.details["field"] == field
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 200


def test_error_contains_the_limit() -> None:
    """Over the limit, the error carries the limit."""
    with pytest.raises(InvalidName) as caught:
        parse_topic("t/n/" + "x" * 256)
    assert caught.value.details == {"field": "topic", "limit": 255}
    assert parse_topic("x" * 255).local == "x" * 255


def test_namespace_is_parsed_or_refused() -> None:
    """`default` is short for public/default."""
    assert parse_namespace("default") == NamespaceName("public", "default")
    assert str(parse_namespace("a/b")) == "a/b"
    with pytest.raises(InvalidName):
        parse_namespace("a/b/c")
    assert parse_topic("a/b/c").namespace_name == NamespaceName("a", "b")


def test_names_that_are_not_strings_are_refused() -> None:
    """Bad input is a named error, never an AttributeError."""
    for wrong in (None, 7, b"flights"):
        with pytest.raises(InvalidName):
            parse_topic(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidName):
            check_producer_name(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["importer", "a b c", "Größe 7", "日本語", "x" * 255])
def test_a_printable_producer_name_is_legal(name: str) -> None:
    """Any script, up to 255 characters."""
    assert check_producer_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 256, "x" * 1000, "new\nline", "bell\x07", "del\x7f", "\u2028", "\ud800", "𝔘" * 255]
)
def test_an_illegal_producer_name_is_refused(name: str) -> None:
    """Empty, long, controls, lone surrogates, and more than 1000 bytes of UTF-8."""
    with pytest.raises(InvalidName) as caught:
        check_producer_name(name)
    assert caught.value.details["field"] == "producer_name"
    assert caught.value.message.isascii()


def test_a_topic_whose_partitions_have_too_long_names_is_refused() -> None:
    check_partitions(parse_topic("x" * 243), 10)
    check_partitions(parse_topic("x" * 241), 1_000)
    with pytest.raises(InvalidName, match="topic has 243 characters: with 11 partitions at most 242 are allowed") as no:
        check_partitions(parse_topic("x" * 243), 11)
    assert (no.value.details["field"], no.value.details["limit"]) == ("topic", 242)
