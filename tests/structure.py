"""Print the measures of the structure of both packages, each beside the wanted number: `nox -s structure`.

A reader's time is measured, not lines: names of one subject, trades in one folder, imports that cannot be
seen at the head of a file. `--details` lists what was counted.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

SUBJECTS: Final = {
    "seats": r"Seat|HeldSeats|GrantedSeat|NoSeat",
    "trials": "Trial",
    "moves": "Move",
    "uses": r"Use(?!r)|Consum|Consumption|Quota",
    "offline_files": r"Offline",
    "sales": r"Sale",
}
"""Each subject, by which it is found, and how names of its classes begin."""

LAYERS: Final = ("domain", "protocol", "services", "database.repositories")
"""Where a class of a subject belongs to the module of that name."""

AIOHTTP_NAMES: Final = [
    "_close",
    "_force_close",
    "_keepalive_handle",
    "_keepalive_timeout",
    "_logging_enabled",
    "_loop",
    "_messages",
    "_next_keepalive_close_time",
    "_parser",
    "_process_keepalive",
    "_reading_paused",
    "_request_factory",
    "_task_handler",
    "_waiter",
    "_paused",
    "_request_count",
    "_make_server",
    "_reg_site",
    "_sock",
    "_backlog",
    "_server",
    "_cleanup_server",
]
"""Private names of aiohttp that this project uses, or has used."""

LOST_NOUNS: Final = re.compile(r"\b(?:one|ones|told|tells|who|whoever|somebody)\b|\bwhat is\b", re.IGNORECASE)
"""Words of `CONTRIBUTING.md` in whose place there is mostly a noun."""


_BINDS_ONE: Final = re.compile(
    r"^\s*\W*(\w+, *)*\*?one\b[^\n]*=|\b(as|def|lambda|for)\b[^:\n]*\bone\b|\bone *:|^ *one,?$", re.MULTILINE
)
"""In a file that binds the name, and in few others: to parse all would take seconds."""

TWINS: Final = frozenset({"licclient.dialogs.qt", "licclient.dialogs.tk"})
"""Modules of which an app imports either: the same name in both has the same meaning."""


class Measure(NamedTuple):
    """A number beside the wanted one, and what was counted."""

    name: str
    number: int
    wanted: int
    counted: Sequence[str] = ()


class Modules:
    """The modules of a package: their paths and trees, by their dotted names."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.source = ROOT / "packages" / package / "src" / package
        self.paths = {self._name(path): path for path in sorted(self.source.rglob("*.py")) if _is_ours(path)}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Parse all modules, once they are needed: each process that collects tests makes this object."""
        return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in self.paths.items()}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.source.parent).with_suffix("").parts
        return ".".join(parts).removesuffix(".__init__")

    def imports(self, name: str) -> Iterator[tuple[str, int, bool]]:
        """Yield what a module imports of its own package: the module, the line, and whether it is late.

        What only annotations need is no import.
        """
        for node, is_late in _walk(self.trees[name], is_late=False):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno, is_late) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield (whole if whole in self.trees else node.module), node.lineno, is_late

    def late_imports(self) -> list[str]:
        """List the imports inside functions."""
        late = ((name, line) for name in self.trees for _, line, is_late in self.imports(name) if is_late)
        return [f"{name}:{line}" for name, line in sorted(set(late))]

    def circles(self) -> list[str]:
        """List the groups of modules that import each other, late imports counted."""
        edges = {
            name: {target for target, _, _ in self.imports(name) if target in self.trees and target != name}
            for name in self.trees
        }
        return [" ".join(sorted(group)) for group in _strongly_connected(edges) if len(group) > 1]

    def classes(self) -> Iterator[tuple[str, str]]:
        """Yield the public classes: module and name."""
        for module, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield module, node.name

    def repeated_names(self) -> list[str]:
        """List public classes and limits whose name several modules define."""
        where = defaultdict(set)
        for module, name in self.classes():
            where[name].add(module)
        for module, tree in self.trees.items():
            for node in tree.body:
                target = getattr(node, "target", None)
                if isinstance(target, ast.Name) and target.id.startswith("MAX_"):
                    where[target.id].add(module)
        several = {name: each for name, each in where.items() if len(each) > 1 and not each <= TWINS}
        return [f"{name}: {', '.join(sorted(each))}" for name, each in sorted(several.items())]

    def naming(self, pattern: str) -> list[str]:
        """List the files whose text matches."""
        expression = re.compile(pattern, re.IGNORECASE)
        return [
            name for name, path in self.paths.items() if expression.search(path.read_text(encoding="utf-8"))
        ]


def _is_ours(path: Path) -> bool:
    return not {"migrations", "deploy_files"} & set(path.parts)


def _walk(tree: ast.AST, *, is_late: bool) -> Iterator[tuple[ast.AST, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node, is_late
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _walk(node, is_late=is_late or is_function)


def _strongly_connected(edges: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups whose members reach each other: few and small, so by reachability."""

    def reach(start: str) -> set[str]:
        seen, todo = set[str](), [start]
        while todo:
            for target in edges[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        return seen

    reached = {name: reach(name) for name in edges}
    groups: list[set[str]] = []
    for name, targets in reached.items():
        if name in targets and not any(name in group for group in groups):
            groups.append({other for other in targets if name in reached[other]})
    return groups


def subject_names(modules: Modules, subject: str, pattern: str) -> list[str]:
    """List the names of modules or folders, across the layers, in which classes of a subject are."""
    begins = re.compile(pattern)
    places = defaultdict(set)
    for module, name in modules.classes():
        path = module.removeprefix(f"{modules.package}.")
        layer = next((layer for layer in LAYERS if path.startswith(f"{layer}.")), None)
        if layer and begins.match(name):
            module_or_folder = path.removeprefix(f"{layer}.").partition(".")[0]
            places[module_or_folder].add(f"{layer}.{name}")
    return [f"{place}: {' '.join(sorted(each))}" for place, each in sorted(places.items())] or [subject]


def private_names(modules: Modules) -> list[str]:
    """List the private names of aiohttp, each with its file, that are used as attributes or methods."""
    found = set()
    for module, tree in modules.trees.items():
        if not any(target.startswith("aiohttp") for target, _, _ in modules.imports(module)):
            continue
        defined = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        own = {name for name in defined if _is_own(tree, name)}
        for node in ast.walk(tree):
            name = getattr(node, "attr", None) or getattr(node, "name", None) or getattr(node, "value", None)
            if name in AIOHTTP_NAMES and name not in own:
                found.add(f"{name} in {module}")
    return sorted(found)


def _is_own(tree: ast.Module, name: str) -> bool:
    """Return whether only classes without a base use `self.name`, or such that set it in `__init__`."""

    def uses(node: ast.AST, *, stored: bool = False) -> bool:
        attributes = (
            part for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr == name
        )
        return any(isinstance(use.ctx, ast.Store) or not stored for use in attributes)

    def sets(user: ast.ClassDef) -> bool:
        methods = (
            statement
            for statement in user.body
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__"
        )
        return any(uses(method, stored=True) for method in methods)

    users = [node for node in tree.body if isinstance(node, ast.ClassDef) and uses(node)]
    return bool(users) and all(not user.bases or sets(user) for user in users)


def upper_pin() -> list[str]:
    """List upper bounds of aiohttp below its next major version."""
    text = (ROOT / "packages/licserver/pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"(aiohttp[^"]*<\d+\.[^"]*)"', text)


def lost_nouns(modules: Modules) -> list[str]:
    """List files with the number of words in whose place a noun belongs, the worst first."""
    counts = {
        name: len(LOST_NOUNS.findall(path.read_text(encoding="utf-8")))
        for name, path in modules.paths.items()
    }
    return [f"{name}: {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]) if count]


def bindings_of_one(paths: Iterable[Path]) -> list[str]:
    """List where a variable, an argument or a function is called `one`: the element has a noun."""
    lines = set[str]()
    for path in paths:
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if _BINDS_ONE.search(text) else ():
            match node:
                case ast.Name(id="one", ctx=ast.Store()) | ast.arg(arg="one") | ast.FunctionDef(name="one"):
                    lines.add(f"{path.relative_to(ROOT)}:{node.lineno}")
                case _:
                    pass
    return sorted(lines)


def list_tests() -> list[Path]:
    """List the tests and tools of the repository."""
    folders = [*(ROOT / name for name in ("bench", "docs", "tests", "tools")), *ROOT.glob("packages/*/tests")]
    paths = [path for folder in folders for path in folder.rglob("*.py") if "vendored" not in path.parts]
    return sorted([*paths, *ROOT.glob("*.py")])


def _total(counted: Iterable[str]) -> int:
    return sum(int(line.rpartition(": ")[2]) for line in counted)


def server_measures() -> Iterator[Measure]:
    """Measure `licserver`."""
    server = Modules("licserver")
    root = [name for name in server.paths if name.startswith("licserver.web.") and name.count(".") == 2]
    root = [name for name in root if server.paths[name].name != "__init__.py"]
    yield Measure("modules at the root of licserver/web", len(root), 13, root)
    for subject, pattern in SUBJECTS.items():
        names = subject_names(server, subject, pattern)
        yield Measure(f"names of modules with {subject}, across the layers", len(names), 1, names)
    late = server.late_imports()
    yield Measure("imports inside functions of licserver", len(late), 15, late)
    circles = server.circles()
    yield Measure("circles of licserver, late imports counted", len(circles), 0, circles)
    private = private_names(server)
    yield Measure("private names of aiohttp", len(private), 5, private)
    files = sorted({line.split(" in ")[1] for line in private})
    yield Measure("files with private names of aiohttp", len(files), 1, files)
    pins = upper_pin()
    yield Measure("upper pins of aiohttp below the major version", len(pins), 0, pins)
    repeated = server.repeated_names()
    yield Measure("names of classes and limits of licserver with two meanings", len(repeated), 0, repeated)
    words = lost_nouns(server)
    yield Measure("words of licserver in place of a noun", _total(words), 0, words)
    bound = bindings_of_one(server.paths.values())
    yield Measure("variables and arguments of licserver called `one`", len(bound), 0, bound)


def client_measures() -> Iterator[Measure]:
    """Measure `licclient`."""
    client = Modules("licclient")
    seats = [name for name in client.naming("seat") if not name.startswith("licclient._seats")]
    yield Measure("files of licclient outside of _seats that name seats", len(seats), 2, seats)
    late = client.late_imports()
    yield Measure("imports inside functions of licclient", len(late), 20, late)
    circles = client.circles()
    yield Measure("circles of licclient, late imports counted", len(circles), 0, circles)
    impure = allowed_indirect_imports("licclient-pure")
    yield Measure("modules of licclient that are pure by their own imports only", len(impure), 0, impure)
    names = _exported(client)
    yield Measure("names at the root of licclient", len(names), 30, names)
    arguments = _arguments(client)
    yield Measure("arguments of LicenseClient", len(arguments), 13, arguments)
    repeated = client.repeated_names()
    yield Measure("names of classes and limits of licclient with two meanings", len(repeated), 0, repeated)
    words = lost_nouns(client)
    yield Measure("words of licclient in place of a noun", _total(words), 0, words)
    bound = bindings_of_one(client.paths.values())
    yield Measure("variables and arguments of licclient called `one`", len(bound), 0, bound)


def allowed_indirect_imports(contract: str) -> list[str]:
    """List the modules of a contract that may import by others what they must not import themselves."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    found = next(table for table in tool["importlinter"]["contracts"] if table["id"] == contract)
    return list(found["source_modules"]) if found.get("allow_indirect_imports") else []


def _exported(client: Modules) -> list[str]:
    for node in client.trees["licclient"].body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        value = getattr(node, "value", None)
        is_all = any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)
        if is_all and isinstance(value, (ast.List, ast.Tuple)):
            return [str(element.value) for element in value.elts if isinstance(element, ast.Constant)]
    return []


def _arguments(client: Modules) -> list[str]:
    """List the arguments of the class that apps create, or of the class that it inherits `__init__` from."""
    for module in ("licclient._client", "licclient._base_client"):
        for node in ast.walk(client.trees[module]):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                arguments = [argument.arg for argument in (*node.args.args[1:], *node.args.kwonlyargs)]
                if len(arguments) > 1:
                    return arguments
    return []


def measures_of_tests() -> Iterator[Measure]:
    """Measure the tests."""
    bound = bindings_of_one(list_tests())
    yield Measure("variables, arguments and functions of tests called `one`", len(bound), 0, bound)


def main(arguments: Sequence[str]) -> None:
    """Print a table of all measures, and with `--details` what was counted."""
    write: Callable[[str], object] = sys.stdout.write
    for measures in (server_measures(), client_measures(), measures_of_tests()):
        for measure in measures:
            mark = " " if measure.number <= measure.wanted else "*"
            write(f"{mark} {measure.name:<70} {measure.number:>5}   wanted: {measure.wanted}\n")
            if "--details" in arguments:
                write("".join(f"      {line}\n" for line in measure.counted[:80]))


if __name__ == "__main__":
    main(sys.argv[1:])
