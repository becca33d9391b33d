"""The commands of `oncelog mirror`. Without the name of one, it is `run`."""

import typer

from oncelog.cli.default_command import RunByDefault
from oncelog.cli.failures import EXIT_CODES
from oncelog_effects.cli.mirror.command import run
from oncelog_effects.cli.mirror.cutover import cutover
from oncelog_effects.cli.mirror.status import status

_HELP = f"""Copy topics into another cluster, each message once, and move to it.

\b
  oncelog mirror --from oncelog://a:6650 --to oncelog://b:6650 --topic orders
  oncelog mirror status --from oncelog://a:6650 --to oncelog://b:6650 \\
      --topic orders

The default command is `run`: `oncelog mirror run --help` shows its options.

{EXIT_CODES}"""

app = typer.Typer(cls=RunByDefault, help=_HELP, no_args_is_help=True, add_completion=False)
for _command in (run, status, cutover):
    app.command(_command.__name__)(_command)
