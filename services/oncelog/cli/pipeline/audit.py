"""`oncelog pipeline audit`: whole topics held against what the log promises."""

from typing import TYPE_CHECKING

import typer

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import (
    DEFAULT_URL,
    Output,
    OutputOption,
    PlaintextTokenOption,
    TlsCaFileOption,
    TokenFileOption,
    UrlOption,
)
from oncelog.cli.pipeline.options import ConfOption, MasterOption, PatternOption, TopicsArgument
from oncelog.cli.pipeline.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HELP = f"""Audit topics.

{EXIT_CODES}"""


def audit(
    topics: TopicsArgument = None,
    pattern: PatternOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    tls_ca_file: TlsCaFileOption = None,
    allow_plaintext_token: PlaintextTokenOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    def work(spark: "SparkSession") -> Exit:
        return Exit.OK

    raise typer.Exit(run_job("oncelog audit", master, conf, work))


audit.__doc__ = _HELP
