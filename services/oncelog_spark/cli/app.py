"""The jobs of `oncelog pipeline`, one file each."""

import typer

from oncelog.cli.extras import SPARK
from oncelog.cli.failures import EXIT_CODES
from oncelog.runtime.installation import install_command
from oncelog_spark.cli.audit import audit
from oncelog_spark.cli.compact import compact
from oncelog_spark.cli.copy import copy
from oncelog_spark.cli.export import export
from oncelog_spark.cli.import_files import import_files

_HELP = f"""Run jobs over whole topics on Spark: on this machine, on a cluster with --master, or by spark-submit.

They need Java 17 or later, in JAVA_HOME or on the PATH, and Spark's Python packages: {install_command(SPARK)}.

    oncelog pipeline audit flights

    oncelog pipeline copy --from orders --to checked --producer-prefix check --checkpoint /data/check

    oncelog pipeline export flights --to /data/flights

    oncelog pipeline import /data/in --topic flights --name landing

    oncelog pipeline compact prices --to prices-compacted

    spark-submit --master … PLACE/oncelog_spark/cli/__main__.py audit flights

PLACE is the directory of the installed package; see `pip show oncelog_spark`. spark-submit sets the master and Spark's
settings; all other options are the same.

{EXIT_CODES}"""

pipeline = typer.Typer(help=_HELP, no_args_is_help=True)


@pipeline.callback()
def root() -> None:
    """Makes this a group of commands."""


pipeline.command()(audit)
pipeline.command()(copy)
pipeline.command()(export)
pipeline.command("import")(import_files)
pipeline.command("compact")(compact)
