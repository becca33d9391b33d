"""Layout: what lies where, and that no two services tell the same story."""

from collections.abc import Iterator, Sequence

from tests.tidy.source import Rule, Source, ignored_names

ALLOWED = {
    ".ci", ".dockerignore", ".editorconfig", ".gitattributes", ".gitignore", ".pre-commit-config.yaml",
    ".python-version", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "OPERATIONS.md",
    "README.md", "REST.md", "SDK.md", "SECURITY.md", "SPARK.md", "deploy", "docker", "proto", "pyproject.toml",
    "requirements.lock", "services", "tests",
}  # fmt: skip
SERVICES = ("topic_owner", "log_storage", "metadata")
SHARED_LINES_MAX = 5


def top_level_is_short(sources: Sequence[Source]) -> Iterator[str]:
    """The top level holds the names that a reader expects, and nothing else."""
    found = {source.path.split("/")[0] for source in sources}
    yield from (f"{name} does not belong at the top level" for name in sorted(found - ALLOWED - ignored_names()))


def one_package(sources: Sequence[Source]) -> Iterator[str]:
    """services/ holds the one package."""
    for source in sources:
        if source.inside("services") and not source.inside("services/oncelog"):
            yield f"{source.path}: outside the package"


def services_share_no_story(sources: Sequence[Source]) -> Iterator[str]:
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
    told = [line for line in stripped if line and not line.startswith(("import ", "from ", "#", ")", "]", "}"))]
    size = SHARED_LINES_MAX + 1
    yield from (tuple(told[start : start + size]) for start in range(len(told) - size + 1))


def _service(name: str, lines: int) -> Source:
    return Source(f"services/oncelog/{name}/x.py", "".join(f"step{number}()\n" for number in range(lines)))


RULES = (
    Rule("the top level is short", top_level_is_short, ((Source("notes.txt", ""),),), (Source("README.md", ""),)),
    Rule(
        "services holds one package",
        one_package,
        ((Source("services/x/y.py", ""),),),
        (Source("services/oncelog/y.py", ""),),
    ),
    Rule(
        "no two services share six lines",
        services_share_no_story,
        ((_service("topic_owner", 6), _service("metadata", 6)),),
        (_service("topic_owner", 5), _service("metadata", 5)),
    ),
)
