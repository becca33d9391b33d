"""Sizes: a file fits a reading, a function a screen, a class a head.

Values and settings may have as many fields as their subject has; what changes over time may not.
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

FILE_LINES_MAX = 400  # TigerBeetle's and h11's files that are a joy to read stay under it
FUNCTION_LINES_MAX = 70  # TigerBeetle's bound
CLASS_METHODS_MAX = 20
CLASS_FIELDS_MAX = 10
MAIN_LINES_MAX = 40
SETTINGS_MAX = 25

_VALUE_BASES = {"NamedTuple", "Enum", "IntEnum", "StrEnum", "IntFlag", "TypedDict", "BaseModel", "Protocol"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def file_lines(source: Source) -> Iterator[str]:
    """A file of ours, Python or protocol, has at most 400 lines."""
    lines = len(source.text.splitlines())
    if (source.is_python or source.path.endswith(".proto")) and lines > FILE_LINES_MAX:
        yield f"{lines} lines, at most {FILE_LINES_MAX}"


def function_lines(source: Source) -> Iterator[str]:
    """A function has at most 70 lines, its docstring included."""
    for node in ast.walk(source.tree) if source.is_python else ():
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def class_size(source: Source) -> Iterator[str]:
    """A class has at most 20 methods and, unless it is a value or settings, 10 instance fields."""
    for node in ast.walk(source.tree) if source.is_python else ():
        if isinstance(node, ast.ClassDef):
            methods = [
                item for item in node.body if isinstance(item, Function) and not _has_decorator(item, "overload")
            ]
            if len(methods) > CLASS_METHODS_MAX:
                yield f"{node.name} has {len(methods)} methods, at most {CLASS_METHODS_MAX}"
            fields = _instance_fields(node)
            if not _is_value(node) and len(fields) > CLASS_FIELDS_MAX:
                yield f"{node.name} has {len(fields)} fields, at most {CLASS_FIELDS_MAX}: {', '.join(sorted(fields))}"


def settings_count(source: Source) -> Iterator[str]:
    """One process has at most 25 settings: more is a sign that it does not know what it wants."""
    for node in ast.walk(source.tree) if source.is_python else ():
        if isinstance(node, ast.ClassDef) and node.name.endswith("Settings"):
            count = sum(isinstance(item, ast.AnnAssign) for item in node.body)
            if count > SETTINGS_MAX:
                yield f"{node.name} has {count} settings, at most {SETTINGS_MAX}"


def main_lines(source: Source) -> Iterator[str]:
    """A `__main__` only starts what lives elsewhere."""
    lines = len(source.text.splitlines())
    if source.path.endswith("/__main__.py") and source.inside("services") and lines > MAIN_LINES_MAX:
        yield f"{lines} lines, at most {MAIN_LINES_MAX}"


def _instance_fields(node: ast.ClassDef) -> set[str]:
    return {
        target.attr
        for method in node.body
        if isinstance(method, Function)
        for target in ast.walk(method)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }


def _is_value(node: ast.ClassDef) -> bool:
    bases = {base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases}
    return bool(bases & _VALUE_BASES) or node.name.endswith("Settings") or _has_decorator(node, "dataclass")


def _has_decorator(node: ast.ClassDef | Function, name: str) -> bool:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if name in {getattr(target, "id", None), getattr(target, "attr", None)}:
            return True
    return False


def _class_of(methods: int, fields: int, *, decorator: str = "") -> Source:
    init = "\n".join(f"        self.f{number} = 0" for number in range(fields))
    rest = "\n".join(f"    def m{number}(self): pass" for number in range(methods - 1))
    return Source("services/oncelog/x.py", f"{decorator}\nclass X:\n    def __init__(self):\n{init}\n{rest}\n")


def _python(lines: int, path: str = "services/oncelog/x.py") -> Source:
    return Source(path, "pass\n" * lines)


def _function_of(lines: int) -> Source:
    return Source("tests/x.py", "def f():\n" + "    pass\n" * (lines - 1))


def _settings_of(count: int) -> Source:
    return Source("services/oncelog/x.py", "class OwnerSettings:\n" + "".join(f"    s{n}: int\n" for n in range(count)))


_MAIN = "services/oncelog/x/__main__.py"

RULES = (
    Rule("a file has at most 400 lines", each(file_lines), ((_python(401),),), (_python(400),)),
    Rule("a function has at most 70 lines", each(function_lines), ((_function_of(71),),), (_function_of(70),)),
    Rule(
        "a class has at most 20 methods and 10 fields",
        each(class_size),
        ((_class_of(21, 10),), (_class_of(20, 11),)),
        (_class_of(20, 10), _class_of(2, 11, decorator="@dataclass")),
    ),
    Rule("a process has at most 25 settings", each(settings_count), ((_settings_of(26),),), (_settings_of(25),)),
    Rule("a __main__ has at most 40 lines", each(main_lines), ((_python(41, _MAIN),),), (_python(40, _MAIN),)),
)
