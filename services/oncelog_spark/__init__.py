"""Spark reads and writes topics with the format "oncelog". The only package that imports PySpark.

    source, sink                                      `spark.read`, `readStream`, `df.write`, `writeStream`
    audit, compaction, copy_job, export, file_import  jobs over whole topics (`oncelog pipeline …`)

Needs Java 17 or later. `session.new_session` makes a session with the format; in any other
session call `spark.dataSource.register(OncelogDataSource)` (`data_source`).
"""
