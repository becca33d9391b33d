"""Words: what no file may say. The project speaks of itself alone, finishes what it starts, and waits in one place.

The words are kept turned by thirteen letters, so that this file does not say them either.
"""

import ast
import codecs
import re
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

UNTIL = "tests/cluster/until.py"


def turned(text: str) -> str:
    """Return the words that the turned text stands for."""
    return codecs.decode(text, "rot13")


_UNFINISHED = turned(r"\o(GBQB|SVKZR|KKK|UNPX|JVC|AbgVzcyrzragrqReebe)\o")
_SKIPPED = turned(r"\o(clgrfg|znex|havggrfg)\.(vzcbegbefxvc|fxvc|fxvcvs|fxvcVs|fxvcGrfg|ksnvy)\o")
_WAITING = turned(r"\o(fyrrc|cngpu)\(|\ohavggrfg(\.| vzcbeg )zbpx\o|\ozbpxre\o")
_MACHINE = turned(
    r"/jbex/|\.\./funerq|\ofunerq/(qrfvta|unmneqf|fglyr|snpgf|frrqf|cebgbglcr)|xhoryno|\osnez-|/ebbg/|/gzc/oevrs"
    r"|\o(qrfvta|unmneqf|fglyr)\.zq|\oqrfvta frpgvba|\opynhqr\o|\onaguebcvp|pungtcg|\opbcvybg\o|\ofhontrag"
)
_REGISTRY = turned(
    r"clcv\.bet|clgubaubfgrq|qrivcv|negvsnpgbel|aczwf\.|pengrf\.vb|qbpxre\.vb|tupe\.vb|dhnl\.vb|\otpe\.vb"
    r"|ercb1?\.znira|cebkl\.tbynat|ertvfgel\.x8f|--vaqrk-hey|--rkgen-vaqrk|--svaq-yvaxf"
)
_EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "stuff"}
_EMPTY_CLASS = re.compile(r"(Manager|Helper|Utils?|Misc)(?![a-z])")

#: The only files that may name the lab of test clusters.
_MAY_NAME_THE_LAB = (".ci/run", "tests/kubernetes/")


def _lines_with(pattern: str, source: Source, flags: int = 0) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), start=1):
        if found := re.search(pattern, line, flags):
            yield f"line {number}: {found.group()}"


def nothing_unfinished(source: Source) -> Iterator[str]:
    """No mark of unfinished work in any file."""
    if source.is_ours:
        yield from _lines_with(_UNFINISHED, source)


def no_test_passed_over(source: Source) -> Iterator[str]:
    """A test runs, or does not exist."""
    if source.is_python:
        yield from _lines_with(_SKIPPED, source)


def tests_wait_in_one_place(source: Source) -> Iterator[str]:
    """Under tests/, only until() waits, and nothing of the code under test is replaced."""
    if source.path.endswith(".py") and source.inside("tests") and source.path != UNTIL:
        yield from _lines_with(_WAITING, source)


def project_speaks_of_itself(source: Source) -> Iterator[str]:
    """No place of a machine, no tool of its makers, no document that is not in the repository."""
    for complaint in _lines_with(_MACHINE, source, re.IGNORECASE):
        if turned("xhoryno") not in complaint.lower() or not source.path.startswith(_MAY_NAME_THE_LAB):
            yield complaint


def no_registry_addresses(source: Source) -> Iterator[str]:
    """Where packages come from is the reader's setting, not ours."""
    yield from _lines_with(_REGISTRY, source, re.IGNORECASE)


def names_say_something(source: Source) -> Iterator[str]:
    """A module or class is named after its subject."""
    if source.is_python:
        for part in source.path.removesuffix(".py").split("/"):
            if part.strip("_") in _EMPTY_NAMES:
                yield f"{part} says nothing"
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and _EMPTY_CLASS.search(node.name):
                yield f"class {node.name} says nothing"


def module_has_docstring(source: Source) -> Iterator[str]:
    """Each module opens with what it is."""
    if source.is_python and not ast.get_docstring(source.tree):
        yield "no docstring opens it"


def _python(text: str, path: str = "tests/core/test_x.py") -> tuple[Source, ...]:
    return (Source(path, text),)


_PLAIN = _python('"""Plain."""\nskip_first = sleepy = dispatch(0)')

RULES = (
    Rule(
        "nothing is unfinished",
        each(nothing_unfinished),
        (_python(turned("# GBQB: yngre")), _python(turned("envfr AbgVzcyrzragrqReebe"))),
        _PLAIN,
    ),
    Rule(
        "no test is passed over or expected to fail",
        each(no_test_passed_over),
        (_python(turned("@clgrfg.znex.fxvcvs(a)")), _python(turned("@clgrfg.znex.ksnvy"))),
        _PLAIN,
    ),
    Rule(
        "tests wait in until alone and replace nothing",
        each(tests_wait_in_one_place),
        (
            _python(turned("gvzr.fyrrc(1)")),
            _python(turned("jvgu cngpu('n.o'): cnff")),
            _python(turned("sebz havggrfg vzcbeg zbpx")),
        ),
        (*_PLAIN, *_python(turned("gvzr.fyrrc(1)"), UNTIL)),
    ),
    Rule(
        "the project speaks of itself alone",
        each(project_speaks_of_itself),
        (_python(turned("# frr /jbex/funerq")), _python(turned("# qrfvta frpgvba 8")), _python(turned("xhoryno"))),
        (*_PLAIN, *_python(turned("xhoryno"), ".ci/run")),
    ),
    Rule("no registry is named", each(no_registry_addresses), ((Source("x.toml", turned("hey = clcv.bet")),),), _PLAIN),
    Rule(
        "modules and classes are named after their subject",
        each(names_say_something),
        (_python('""', "services/oncelog/utils.py"), _python("class TopicManager: pass")),
        _PLAIN,
    ),
    Rule("a docstring opens each module", each(module_has_docstring), (_python("x = 1"),), _PLAIN),
)
