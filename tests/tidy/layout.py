"""Layout: what lies where, what files are called and how long they are, and that two services share no code."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.tidy.source import DISTRIBUTIONS, PRODUCT, Rule, Source, each, ignored_names

ALLOWED = {
    ".ci", ".dockerignore", ".editorconfig", ".gitattributes", ".gitignore", ".pre-commit-config.yaml",
    ".python-version", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO",
    "README.md", "SECURITY.md", "deploy", "docker", "docs", "proto", "pyproject.toml", "requirements.lock", "services",
    "tests",
}  # fmt: skip
SERVICES = ("topic_owner", "log_storage", "metadata")
SHARED_LINES_MAX = 5
#: A loose bound: about 400 lines is the habit (CONTRIBUTING.md).
FILE_LINES_MAX = 500
#: About fifteen is the habit (CONTRIBUTING.md).
ROOM_MODULES_MAX = 24
GLOSSARY = "docs/promises-and-words.md"
#: {part of a name: the word of the glossary for the same thing}
OTHER_WORDS = {
    "AckChain": "ack log",
    "Ailing": "NodeState",
    "Debt": "missing copies",
    "DedupCursor": "snapshot",
    "DeliveryLease": "delivery gate",
    "Hurt": "NodeState",
    "Judge": "AckStateLimit",
    "MessageRun": "MessageRange",
    "Settle": "durable",
    "TopicSpace": "retention",
}
_EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "stuff"}
_EMPTY_CLASS = re.compile(r"(Manager|Helper|Utils?|Misc)(?![a-z])")


def top_level_is_short(sources: Sequence[Source]) -> Iterator[str]:
    """The top level holds the names that a reader expects, and nothing else."""
    found = {source.path.split("/")[0] for source in sources}
    yield from (f"{name} does not belong at the top level" for name in sorted(found - ALLOWED - ignored_names()))


def only_distributions(sources: Sequence[Source]) -> Iterator[str]:
    """services/ holds the distributions of the product, and the lab that tries them."""
    for source in sources:
        if source.inside("services") and not source.inside(*DISTRIBUTIONS):
            yield f"{source.path}: outside the packages"


def rooms_are_small(sources: Sequence[Source]) -> Iterator[str]:
    """A folder of the product, and of the tests, holds at most so many modules: a reader takes in its list."""
    rooms = Counter(
        source.path.rpartition("/")[0]
        for source in sources
        if source.is_python
        and source.inside("services", "tests")
        and not source.path.endswith(("/__init__.py", "/__main__.py"))
    )
    yield from (
        f"{room}: {count} modules, at most {ROOM_MODULES_MAX}"
        for room, count in rooms.items()
        if count > ROOM_MODULES_MAX
    )


def rooms_say_what_they_hold(source: Source) -> Iterator[str]:
    """The __init__ of a folder says in its first sentence what the folder holds."""
    is_room = source.is_python and source.inside("services") and source.path.endswith("/__init__.py")
    if is_room and not (ast.get_docstring(source.tree) or "").strip():
        yield "does not say what this folder holds"


def file_lines(source: Source) -> Iterator[str]:
    """A file of ours, Python or protocol, has at most 500 lines."""
    lines = len(source.text.splitlines())
    if (source.is_python or source.path.endswith(".proto")) and lines > FILE_LINES_MAX:
        yield f"{lines} lines, at most {FILE_LINES_MAX}"


def names_say_something(source: Source) -> Iterator[str]:
    """A module or class is named after its subject."""
    if source.is_python:
        for name in source.path.removesuffix(".py").split("/"):
            if name.strip("_") in _EMPTY_NAMES:
                yield f"{name} says nothing"
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and _EMPTY_CLASS.search(node.name):
                yield f"class {node.name} says nothing"


def names_are_of_the_glossary(source: Source) -> Iterator[str]:
    """A module or class of the product is not named by a word for which the glossary has another one."""
    if source.is_python and source.inside("services"):
        module = "".join(part.capitalize() for part in source.path.rpartition("/")[2].removesuffix(".py").split("_"))
        for name in (module, *(node.name for node in source.nodes if isinstance(node, ast.ClassDef))):
            others = [other for other in OTHER_WORDS if other in name]
            yield from (f"{name}: the word is {OTHER_WORDS[other]} ({GLOSSARY})" for other in others)


def class_names_are_unique(sources: Sequence[Source]) -> Iterator[str]:
    """A class of a room has its name alone; private classes, with an underscore, are their module's business."""
    places: dict[str, str] = {}
    for source in sources:
        if source.is_python and source.inside(*PRODUCT):
            for node in source.nodes:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    name = f"{source.path.rpartition('/')[0]}/{node.name}"
                    if name in places:
                        yield f"{source.path} and {places[name]}: two classes are called {node.name}"
                    places[name] = source.path


def services_share_no_code(sources: Sequence[Source]) -> Iterator[str]:
    """Six equal lines in two services belong in runtime, rpc or ledgers."""
    seen: dict[tuple[str, ...], Source] = {}
    for service in SERVICES:
        own: dict[tuple[str, ...], Source] = {}
        for source in sources:
            if source.is_python and source.inside(f"services/oncelog/{service}"):
                own |= dict.fromkeys(_passages(source), source)
        for passage, source in own.items():
            if passage in seen:
                yield f"{source.path} and {seen[passage].path} share: {' / '.join(passage)}"
        seen |= own


def _passages(source: Source) -> Iterator[tuple[str, ...]]:
    stripped = (line.strip() for line in source.text.splitlines())
    code = [line for line in stripped if line and not line.startswith(("import ", "from ", "#", ")", "]", "}"))]
    size = SHARED_LINES_MAX + 1
    yield from (tuple(code[start : start + size]) for start in range(len(code) - size + 1))


def _service(name: str, lines: int) -> Source:
    return Source(f"services/oncelog/{name}/x.py", "".join(f"step{number}()\n" for number in range(lines)))


RULES = (
    Rule("the top level is short", top_level_is_short, ((Source("notes.txt", ""),),), (Source("README.md", ""),)),
    Rule(
        "services holds the distributions",
        only_distributions,
        ((Source("services/x/y.py", ""),),),
        (Source("services/oncelog/y.py", ""), Source("services/oncelog_lab/y.py", "")),
    ),
    Rule(
        "rooms are small",
        rooms_are_small,
        (tuple(Source(f"services/oncelog/x/y{number}.py", "") for number in range(ROOM_MODULES_MAX + 1)),),
        tuple(Source(f"services/oncelog/x/y{number}.py", "") for number in range(ROOM_MODULES_MAX)),
    ),
    Rule(
        "a room says what it holds",
        each(rooms_say_what_they_hold),
        ((Source("services/oncelog/x/__init__.py", ""),),),
        (Source("services/oncelog/x/__init__.py", '"""Holds x."""'),),
    ),
    Rule(
        "a file has at most 500 lines",
        each(file_lines),
        ((Source("tests/x.py", "pass\n" * 501),),),
        (Source("tests/x.py", "pass\n" * 500),),
    ),
    Rule(
        "modules and classes are named after their subject",
        each(names_say_something),
        ((Source("services/oncelog/utils.py", ""),), (Source("tests/x.py", "class TopicManager: pass"),)),
        (Source("services/oncelog/topic.py", "class Topic: pass"),),
    ),
    Rule(
        "names are of the glossary",
        each(names_are_of_the_glossary),
        ((Source("services/oncelog/ack_chain.py", ""),), (Source("services/oncelog/x.py", "class QuotaJudge: pass"),)),
        (Source("services/oncelog/ack_log.py", "class AckLog: pass"),),
    ),
    Rule(
        "no two classes of a room have one name",
        class_names_are_unique,
        ((Source("services/oncelog/x.py", "class A: pass"), Source("services/oncelog/y.py", "class A: pass")),),
        (
            Source("services/oncelog/x.py", "class _A: pass"),
            Source("services/oncelog/y.py", "class _A: pass"),
            Source("services/oncelog/x/x.py", "class A: pass"),
            Source("services/oncelog/y/y.py", "class A: pass"),
        ),
    ),
    Rule(
        "no two services share six lines",
        services_share_no_code,
        ((_service("topic_owner", 6), _service("metadata", 6)),),
        (_service("topic_owner", 5), _service("metadata", 5)),
    ),
)
