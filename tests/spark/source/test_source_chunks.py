"""Messages in chunks, which Spark's source does not join."""

import pytest

from oncelog.core.errors import ChunkedMessage
from oncelog_spark.source.arrow_columns import FoundEntry, entry_slice
from tests.contract.sdk.consuming.test_chunk_join import stored


def test_source_gets_an_error_and_no_empty_value() -> None:
    with pytest.raises(ChunkedMessage, match="in chunks"):
        entry_slice(FoundEntry(stored(), "p"), first=0, end=100)
