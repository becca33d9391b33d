"""The main file for spark-submit in the pipeline's image, `local:///opt/pipeline/jobs/oncelog_jobs.py JOB …`: the
commands of `oncelog pipeline`, at a place that hangs on no version of Python."""

from oncelog_spark.cli.__main__ import main

if __name__ == "__main__":
    main()
