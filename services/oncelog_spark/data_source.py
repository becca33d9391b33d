"""The format "oncelog" of Spark, for reading and writing, in batches and as a stream.

Spark pickles these objects by reference, so executors need this package, too. No object here, or made while planning,
may hold a connection: workers are forked, and a gRPC channel does not survive a fork.
"""

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
    """Options: for reading in `source.options`, for writing in `sink.options`, for both in `options`.

    Modules are imported when they are used: Spark starts a process for each step of planning.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """The columns that are read."""
        from oncelog_spark.source.options import columns_of
        from oncelog_spark.source.reader import schema_of

        return schema_of(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from oncelog_spark.source.reader import new_reader

        return new_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from oncelog_spark.source.reader import new_stream_reader

        return new_stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from oncelog_spark.sink.writer import new_writer

        return new_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from oncelog_spark.sink.writer import new_stream_writer

        return new_stream_writer(self.options, schema, overwrite=overwrite)
