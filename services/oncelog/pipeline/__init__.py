"""Spark reads and writes topics: `spark.read.format("oncelog")` and its three siblings. The only importer of PySpark.

Needs the extra `pipeline` and a Java from version 17 on. `session.new_session` makes a session that knows the format;
any other session learns it by `spark.dataSource.register(OncelogDataSource)` (`data_source`).
"""
