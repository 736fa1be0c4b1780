"""Rules of the architecture: imports point one way, sizes are reviewed, nothing is unfinished."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

# All tests here read the whole tree; one worker parses it once.
pytestmark = pytest.mark.xdist_group("layout")

ROOT = Path(__file__).parent.parent
PACKAGES = ("harness", "targets", "nemesis", "checkers", "workloads", "results")
PLUGINS = tuple(name for name in PACKAGES if name != "harness")

# The modules of this project that each package may import; a prefix allows everything below it.
FLOOR = (
    "harness.ops", "harness.errors", "harness.exact", "harness.independent", "harness.permits",
    "harness.timeline", "harness.vocabularies",
)  # fmt: skip
SEAMS = (
    *FLOOR, "harness.env", "harness.cluster", "harness.generator", "harness.plugins",
    "harness.nodes", "harness.registry",
)  # fmt: skip
CLIENTS = (*FLOOR, "harness.env", "harness.plugins", "targets")
SYSTEM = (*CLIENTS, "harness.cluster")
ALLOWED = {
    "harness.ops": ("harness.errors",),
    "harness.errors": (),
    "harness.exact": (),
    "harness.independent": ("harness.ops", "harness.errors", "harness.exact"),
    "harness.permits": ("harness.ops", "harness.timeline"),
    "harness.timeline": ("harness.ops",),
    "harness.vocabularies": ("harness.ops", "harness.errors", "harness.vocabularies"),
    "harness.support": ("harness.errors", "harness.registry", "harness.support"),
    "harness.env": (*FLOOR, "harness.support.importing"),
    "harness.nodes": (*FLOOR, "harness.cluster", "harness.nodes"),
    "harness.cluster": (*FLOOR, "harness.nodes"),
    "harness.case": FLOOR,
    "harness.generator": (*FLOOR, "harness.generator"),
    "harness.plugins.options": FLOOR,
    "harness.plugins": (*SEAMS, "harness.case", "harness.plugins"),
    "harness.faults": (*SEAMS, "harness.case", "harness.faults"),
    "harness.verdict.signature": FLOOR,
    "harness.store": (*FLOOR, "harness.case", "harness.verdict.signature", "harness.store"),
    "harness.environments": (*SEAMS, "harness.case", "harness.environments", "harness"),
    "targets": (*SYSTEM, "harness.support.exposition"),
    "targets.declared": (*SYSTEM, "harness.case", "harness.support.cache_dir", "harness.nodes"),
    "targets.declared.protocols": (*CLIENTS, "harness.support.http1", "harness.support.loopback"),
    "targets.kudu.pages.metrics": (*FLOOR, "harness.support.exposition", "targets"),
    "targets.apache_hive": (*SYSTEM, "harness.support.cache_dir", "harness.support.java"),
    "targets.apache_kudu": (*SYSTEM, "harness.webclient"),
    "targets.apache_kudu.javaclient": (*CLIENTS, "harness.support.java"),
    "targets.artefacts": (*FLOOR, "harness.support.cache_dir"),
    "targets.fetch_verb": (*FLOOR, "harness.cli.parser"),
    "targets.kudu.tools.verb": (*FLOOR, "harness.plugins", "harness.up", "targets"),
    "nemesis": (*SEAMS, "harness.case", "harness.faults", "nemesis"),
    "workloads": (*SEAMS, "harness.case", "workloads"),
    "checkers.elle": ("harness.ops", "harness.errors", "harness.exact", "checkers.elle"),
    "checkers.linearizability": (
        *("harness.ops", "harness.errors", "harness.exact", "checkers.linearizability"),
    ),
    "checkers": (
        *(*FLOOR, "harness.case", "harness.plugins", "harness.verdict.coverage"),
        *("harness.verdict.readings", "checkers"),
    ),
    "checkers.verdict": (
        *(*FLOOR, "harness.plugins", "checkers.verdict", "checkers.linearizability"),
    ),
    "checkers.catalog.models": (*FLOOR, "checkers.linearizability", "checkers.catalog.models"),
    "checkers.catalog.passes": (
        *(*FLOOR, "checkers.linearizability", "checkers.catalog.models"),
        "checkers.catalog.passes",
    ),
}
THIRD_PARTY = {
    "harness.ops": {"msgspec", "pandas"},
    "checkers": {"msgspec", "numpy"},
    "targets": {"msgspec"},
    "targets.apache_hive": {
        *("gssapi", "msgspec", "psycopg", "puresasl", "pymetastore", "thrift"),
    },
    "targets.declared.compose": {"msgspec", "yaml"},
    "targets.declared.protocols": {"aiomysql", "kazoo", "msgspec", "psycopg", "pymysql"},
    "targets.hive.sql.postgres": {"msgspec", "psycopg"},
    "targets.hive.zookeeper.kazoo": {"kazoo", "msgspec"},
    "nemesis": {"msgspec"},
    "workloads": {"msgspec"},
}
FILE_LINES = 400  # the maximum size of a file that is not in LARGE
FUNCTION_LINES = 70
# Larger files and functions, as `file` or `file:function`: the maximum size (the current size,
# rounded up to a multiple of twenty), and why it is one piece. Split where responsibility changes,
# never because of a number.
LARGE = {
    "checkers/catalog/invariants/refusals.py": (
        440,
        "one refusal after another, each with its proof",
    ),
    "checkers/catalog/invariants/snapshot.py": (440, "one snapshot, rule after rule"),
    "checkers/conduct/bounds.py": (450, "one measure after another, each against its limit"),
    "checkers/rows/reading.py": (420, "one conversion, from a history to parts and looks"),
    "harness/verdict/explain.py": (410, "one sentence, phrase by phrase"),
    "checkers/catalog/permits.py": (430, "one problem: a search under permits, and what it used"),
    "checkers/catalog/history.py": (465, "one conversion, from a history to operations"),
    "checkers/elle/infer/columns.py": (420, "one form of history, and how it is built"),
    "harness/cli/soak/output.py": (420, "one soak, told as text and as JSON"),
    "harness/cluster.py": (520, "one protocol and the structs that it speaks in"),
    "harness/determinism/linter.py": (460, "one visitor of the syntax tree"),
    "harness/environments/docker/deploy.py": (420, "every object of a run in the engine"),
    "harness/environments/docker/engine/engine.py": (
        650,
        "the only place that speaks to Docker's SDK",
    ),
    "harness/environments/docker/network/packets.py": (
        480,
        "a program that is copied into a node alone",
    ),
    "harness/environments/sim/connection.py": (425, "one model of a connection, frame by frame"),
    "harness/environments/process/node.py": (460, "one node's life: process, pace, folder, log"),
    "harness/run/interpreter.py": (500, "one loop over clients, and its flights"),
    "harness/ops.py": (500, "the ground floor: operations, histories, verdicts"),
    "harness/timeline.py": (460, "one reading of a history's faults, leaders and lives"),
    "targets/kudu/bounds.py": (430, "one limit after another, each with its reason"),
    "targets/kudu/bugs.py": (640, "one ledger, row after row"),
    "targets/kudu/consensus/raft_core.py": (500, "terms, votes and roles, which change together"),
    "targets/kudu/consensus/consensus_queue.py": (
        460,
        "one table of peers, and all that is decided by it",
    ),
    "targets/kudu/consensus/raft_consensus.py": (
        670,
        "the owner's door, and the order of all effects",
    ),
    "targets/kudu/consensus/raft_consensus.py:__init__": (
        90,
        "an argument a line, and the parts they go to",
    ),
    "targets/kudu/rpc/client.py": (470, "one connection and its calls"),
}


@functools.cache
def sources():
    return [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def text_of(path):
    return path.read_text()


@functools.cache
def tree_of(path):
    return ast.parse(text_of(path))


@functools.cache
def statements_of(path):
    """Return all statements, including nested ones; expressions are not needed."""
    found = list(tree_of(path).body)
    for node in found:  # the list grows during the loop
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, field, ())
    return found


@functools.cache
def imports_of(path):
    """Return the dotted names of all modules that a file imports, anywhere in the file."""
    names = []
    for node in statements_of(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            names.append(node.module)
    return names


def rule_for(module, table):
    """Return the entry of the longest prefix of `module`."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in table:
            return table[prefix]
    return None


def below(name, prefixes):
    """Whether `name` is one of `prefixes` or inside one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def test_imports_point_downwards():
    for path in sources():
        module = module_of(path)
        ours = [name for name in imports_of(path) if name.split(".")[0] in PACKAGES]
        if module.split(".")[0] == "harness":
            assert [name for name in ours if name.split(".")[0] in PLUGINS] == [], path
        allowed = rule_for(module, ALLOWED)
        if allowed is not None:
            assert [name for name in ours if not below(name, allowed)] == [], path


def test_no_modules_import_each_other_in_a_circle():
    modules = {module_of(path): path for path in sources()}
    left = {}
    for module, path in modules.items():
        needs = set()
        for node in statements_of(path):
            if isinstance(node, ast.Import):
                needs |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                needs |= (
                    inner & modules.keys() if inner <= modules.keys() else {node.module, *inner}
                )
        left[module] = (needs & modules.keys()) - {module}
    while free := {module for module, needs in left.items() if not needs & left.keys()}:
        for module in free:  # the module is in no circle
            del left[module]
    assert left == {}, "each of these is in a circle of imports, or imports one that is"


def test_third_party_imports_are_few():
    for path in sources():
        allowed = rule_for(module_of(path), THIRD_PARTY)
        if allowed is None:
            continue
        first = {name.split(".")[0] for name in imports_of(path)}
        assert first - {*sys.stdlib_module_names, *PACKAGES} - allowed == set(), path


def above_the_habit():
    """Count the lines of each unusually large file and function; docstrings do not count."""
    large = {}
    for path in sources():
        file = path.relative_to(ROOT).as_posix()
        sizes = [(file, len(text_of(path).splitlines()), FILE_LINES)]
        for node in statements_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                docstring = ast.get_docstring(node, clean=False) or ""
                lines = node.end_lineno - node.lineno + 1 - docstring.count("\n")
                sizes.append((f"{file}:{node.name}", lines, FUNCTION_LINES))
        for name, lines, habit in sizes:
            if lines > max(habit, large.get(name, 0)):
                large[name] = lines
    return large


def test_what_is_large_was_reviewed():
    large = above_the_habit()
    grown = {name: lines for name, lines in large.items() if lines > LARGE.get(name, (0, ""))[0]}
    assert grown == {}, "split it by responsibility, or enter it in LARGE with the reason"
    small = sorted(LARGE.keys() - large)
    assert small == [], "these are small again: remove them from LARGE"


def test_files_tell_their_design():
    for path in sources():
        assert ast.get_docstring(tree_of(path)), f"{path} has no docstring that explains its design"


FOLDER_MODULES = 25


def folders():
    """Map each package folder to the first paragraph of its docstring."""
    for path in sources():
        if path.name == "__init__.py":
            docstring = ast.get_docstring(tree_of(path)) or ""
            yield path.parent, " ".join(docstring.partition("\n\n")[0].split())


def test_the_map_shows_every_folder():
    """`docs/architecture.md` has one line per folder: its purpose, from its docstring."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    lines = [f"| `{folder.relative_to(ROOT).as_posix()}/` | {text} |" for folder, text in folders()]
    missing = [line for line in lines if line not in page.splitlines()]
    assert missing == [], "put these lines into the section 'The tree', in order"
    shown = re.findall(r"^\| `((?:%s)[\w/]*/)` \|" % "|".join(PACKAGES), page, re.MULTILINE)  # noqa: UP031
    assert len(shown) == len(lines), "the page has folders that do not exist"


def test_no_folder_is_flat():
    """In packages, tests and benches: at most 25 modules, without `__init__`."""
    count = dict.fromkeys((path.parent for path in sources()), 0)
    count |= dict.fromkeys((p.parent for p in (ROOT / "tests").rglob("*.py")), 0)
    for folder in count:
        count[folder] = sum(path.name != "__init__.py" for path in folder.glob("*.py"))
    assert {str(folder): n for folder, n in count.items() if n > FOLDER_MODULES} == {}


def test_nothing_is_unfinished():
    pattern = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")
    found = [
        f"{path}: {line}"
        for path in sources()
        for line in text_of(path).splitlines()
        if pattern.search(line)
    ]
    assert found == []


def test_public_names_exist():
    for path in sources():
        listed = []
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                listed = [element.value for element in getattr(node.value, "elts", [])]
        defined = set()
        for node in statements_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                defined.add(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                defined |= {
                    name.id
                    for target in targets
                    for name in ast.walk(target)
                    if isinstance(name, ast.Name)
                }
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                defined |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        assert [name for name in listed if name not in defined] == [], path
