"""The format "oncelog" of Spark, for reading and writing, in batches and as a stream.

Spark pickles these objects by reference: executors need this package, too. Nothing here, and nothing that is made while
planning, may hold a connection: workers are forked, and a gRPC channel does not live through that.
"""

from importlib import import_module
from typing import cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

FORMAT = "oncelog"


class OncelogDataSource(DataSource):
    """Options: of reading in `source_options`, of writing in `sink_options`, of both in `connection`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Of what is read."""
        return cast("StructType", import_module("oncelog.pipeline.source").SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        source = import_module("oncelog.pipeline.source")
        return cast("DataSourceReader", source.new_reader(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        source = import_module("oncelog.pipeline.source")
        return cast("DataSourceStreamReader", source.new_stream_reader(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        sink = import_module("oncelog.pipeline.sink")
        return cast("DataSourceWriter", sink.new_writer(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        sink = import_module("oncelog.pipeline.sink")
        return cast("DataSourceStreamWriter", sink.new_stream_writer(self.options, schema, overwrite=overwrite))
