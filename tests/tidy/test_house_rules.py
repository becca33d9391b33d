"""The house rules hold for the repository as it is, and each of them can fail."""

import pytest

from tests.tidy import imports, layout
from tests.tidy.layout import GLOSSARY, OTHER_WORDS
from tests.tidy.source import ROOT, Rule, repository
from tests.tidy.steadiness import answers, clocks, kills, machine, sessions

RULES = [*imports.RULES, *layout.RULES, *machine.RULES, *answers.RULES, *clocks.RULES, *kills.RULES, *sessions.RULES]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.replace(" ", "-"))


@each_rule
def test_repository_keeps_the_rule(rule: Rule) -> None:
    """Read every file; a breach is named with its place."""
    complaints = list(rule.check(repository()))
    assert not complaints, f"{rule.name}:\n" + "\n".join(complaints)


@each_rule
def test_rule_finds_a_breach(rule: Rule) -> None:
    """The control: a rule that cannot fail holds nothing."""
    assert rule.breaches
    for breach in rule.breaches:
        assert list(rule.check(breach)), f"{rule.name}: not found in {breach}"


@each_rule
def test_rule_lets_the_innocent_pass(rule: Rule) -> None:
    """The other control: what comes closest without a breach is left alone."""
    assert not list(rule.check(rule.innocent))


def test_repository_is_read() -> None:
    """A reader that finds nothing would find no breach."""
    paths = {source.path for source in repository()}
    assert {"Makefile", "services/oncelog/core/errors.py", "tests/tidy/test_house_rules.py"} <= paths
    assert not [path for path in paths if path.startswith((".venv/", ".git/"))]


def test_glossary_has_the_words() -> None:
    """The words that names must have instead of others."""
    text = (ROOT / GLOSSARY).read_text()
    assert [word for word in OTHER_WORDS.values() if word not in text] == []
