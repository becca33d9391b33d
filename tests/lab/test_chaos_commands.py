"""The chaos commands at their edge: what cannot be carried out is refused before a cluster is touched."""

import pytest
from typer.testing import CliRunner

from oncelog.lab.chaos.commands import app

OPTIONS = (
    "--rollout-command",
    "--node-cut-command",
    "--node-mend-command",
    "--node-kill-command",
    "--node-start-command",
)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("text", ["helm upgrade 'oncelog", ""])
def test_a_command_line_that_is_none_is_refused_by_its_name(option: str, text: str) -> None:
    """An unclosed quote would be met when the fault's turn comes, half an hour into the run."""
    answer = CliRunner().invoke(app, ["run", option, text], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert answer.exit_code == 2
    assert option in answer.output
