"""The tables of Kafka's messages are those of its definitions."""

from pathlib import Path

from oncelog_doors.kafka.apis import KNOWN
from oncelog_doors.wire import kafka_tables
from tests.suite.kafka_tables import definitions, tables


def test_committed_tables_are_what_the_definitions_say() -> None:
    """A table that was edited by hand, or is older than the versions that are known, is found."""
    assert Path(kafka_tables.__file__).read_text() == tables(definitions())


def test_every_known_request_has_a_table_of_its_key() -> None:
    keys = {api: message.key for api, message in kafka_tables.REQUESTS.items()}
    assert list(keys) == list(KNOWN)
    assert {api: message.key for api, message in kafka_tables.RESPONSES.items()} == keys
    assert keys["Produce"] == 0
    assert keys["ApiVersions"] == 18
