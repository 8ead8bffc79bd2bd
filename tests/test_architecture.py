"""The borders of docs/architecture.md, kept by reading every file and by starting a child interpreter."""

from __future__ import annotations

import ast
import configparser
import fnmatch
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("loadtest", "metrics", "reports", "workloads")

# Who may import which of our packages; the longest matching prefix of the importing module decides.
OURS_ALLOWED = {
    "workloads": set(),
    "metrics": set(),
    "reports": {"metrics"},
    "loadtest": {"workloads", "metrics"},
    "loadtest.cli": {"workloads", "metrics", "reports"},
}

# Who may import a library whose import costs something: a patched socket module, a second, a gigabyte.
LIBRARY_HOMES = {
    "locust": {"loadtest.swarm"},
    "gevent": {"loadtest.swarm", "loadtest.replay.reactor"},
    "aiohttp": {"loadtest.backends"},
    "torch": {"loadtest.backends.engine"},
    "altair": {"reports"},
    "vl_convert": {"reports"},
}

# Inside loadtest: the importing prefix must never reach the imported one.
FORBIDDEN_PATHS = [
    ("loadtest.backends", "loadtest.replay"),
    ("loadtest.backends", "loadtest.swarm"),
    ("loadtest.replay", "loadtest.swarm"),
    ("loadtest.replay", "loadtest.backends"),
    ("loadtest.swarm", "loadtest.cli"),
    ("loadtest.backends", "loadtest.cli"),
    ("loadtest.replay", "loadtest.cli"),
]

# Modules that are programs or talk to the user: they may print and set the exit code.
PROGRAMS = ("loadtest.cli", "loadtest.swarm.worker", "loadtest.swarm.locustfile")

# What a light import must not load, and what the command line must not load before it knows the command.
HEAVY = {"aiohttp", "altair", "gevent", "locust", "torch", "vl_convert"}
HEAVY_FOR_HELP = HEAVY | {"numpy", "scipy", "msgspec", "rich.progress", "jinja2"}

UNSAFE = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
DRAWERS = {"utils", "util", "helpers", "misc", "common"}
MODULE_LINES = 400
FUNCTION_LINES = 60


@dataclass(frozen=True)
class Module:
    """One file of ours: its dotted name, its text and its tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    def __str__(self) -> str:
        return self.name


@cache
def modules() -> list[Module]:
    """Every Python file of the four packages."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text(encoding="utf-8")
            found.append(Module(name, path, text, ast.parse(text, str(path))))
    return found


def imports(module: Module) -> Iterator[str]:
    """Dotted names this module imports anywhere, inside functions too, relative ones resolved."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, prefix: str) -> bool:
    """Whether `name` is the module `prefix` or lies below it."""
    return name == prefix or name.startswith(f"{prefix}.")


def is_program(module: Module) -> bool:
    """Whether this module is started by a user or by `supervise.py`."""
    return module.path.name == "__main__.py" or any(within(module.name, name) for name in PROGRAMS)


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """Name and length in lines of every function, decorators left out."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{module.name}.{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def called(module: Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call as its dotted text (`np.random.seed`) and its node."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_every_package_is_there() -> None:
    """The reader below would pass on an empty tree."""
    assert set(PACKAGES) <= {module.name for module in modules()}


def test_packages_import_only_what_the_table_allows() -> None:
    """workloads and metrics know nothing of ours, reports only metrics, and only the command line knows reports."""
    wrong = []
    for module in modules():
        rule = max((prefix for prefix in OURS_ALLOWED if within(module.name, prefix)), key=len)
        allowed = OURS_ALLOWED[rule] | {module.name.split(".")[0]}
        for name in set(imports(module)):
            top = name.split(".")[0]
            if top in PACKAGES and top not in allowed:
                wrong.append(f"{module} imports {name}")
    assert [] == sorted(wrong)


@pytest.mark.parametrize(("source", "target"), FORBIDDEN_PATHS, ids=lambda name: name.removeprefix("loadtest."))
def test_parts_of_loadtest_stay_apart(source: str, target: str) -> None:
    """The servers know nothing of the client, and no part knows the command line."""
    wrong = [
        f"{module} imports {name}"
        for module in modules()
        if within(module.name, source)
        for name in set(imports(module))
        if within(name, target)
    ]
    assert [] == sorted(wrong)


@pytest.mark.parametrize("library", sorted(LIBRARY_HOMES))
def test_costly_libraries_stay_at_home(library: str) -> None:
    """Importing locust patches sockets, torch weighs a gigabyte: each has one home in the tree."""
    wrong = {
        f"{module} imports {name}"
        for module in modules()
        if not any(within(module.name, home) for home in LIBRARY_HOMES[library])
        for name in imports(module)
        if within(name, library)
    }
    assert [] == sorted(wrong)


def loaded_after(statement: str, suspects: set[str]) -> list[str]:
    """Those of `suspects` that a fresh interpreter holds after `statement`."""
    code = f"import sys\n{statement}\nprint(*(name for name in {sorted(suspects)} if name in sys.modules))"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GOODPUT_")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("package", ["metrics", "workloads", "reports", "loadtest", "loadtest.cli"])
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    """A library user who wants percentiles must not get patched sockets."""
    assert [] == loaded_after(f"import {package}", HEAVY)


@pytest.mark.parametrize("prefix", ["metrics", "workloads", "reports.text"])
def test_importing_every_module_below_loads_nothing_heavy(prefix: str) -> None:
    """Arithmetic and plain text never need a browser's charts or a server's sockets."""
    names = [module.name for module in modules() if within(module.name, prefix)]
    assert [] == loaded_after(f"import {', '.join(names)}", HEAVY)


def test_the_command_line_starts_light() -> None:
    """`goodput --help` must not wait for numpy: a command's imports happen when that command is chosen."""
    assert [] == loaded_after("import loadtest.cli.main", HEAVY_FOR_HELP)


def test_time_comes_from_the_clock_module() -> None:
    """Tests can fake time because only loadtest/clock.py asks the machine."""
    wrong = []
    for module in modules():
        if module.name == "loadtest.clock":
            continue
        wrong += [f"{module} imports {name}" for name in set(imports(module)) if within(name, "time")]
        wrong += [
            f"{module} calls {text}"
            for text, _ in called(module)
            if text.split(".")[-1] in {"utcnow", "today"} or text in {"datetime.now", "datetime.datetime.now"}
        ]
    assert [] == sorted(wrong)


def test_chance_comes_from_an_explicit_generator() -> None:
    """Same seed, same bytes: no module-level generator, none seeded by the machine."""
    wrong = []
    explicit = {"default_rng", "Generator", "SeedSequence", "PCG64", "Philox", "PCG64DXSM"}
    for module in modules():
        wrong += [f"{module} imports {name}" for name in set(imports(module)) if within(name, "random")]
        for text, call in called(module):
            _, dot, name = text.rpartition("random.")
            if dot and text.startswith(("np.", "numpy.")) and name not in explicit:
                wrong.append(f"{module} calls {text}")
            if text.split(".")[-1] == "default_rng" and not call.args and not call.keywords:
                wrong.append(f"{module} calls {text}() without a seed")
    assert [] == sorted(wrong)


def test_library_code_neither_prints_nor_exits() -> None:
    """Errors are raised with their exit code; only programs talk and leave."""
    leaving = {"print", "sys.exit", "exit", "quit", "os._exit"}
    wrong = [
        f"{module} calls {text}"
        for module in modules()
        if not is_program(module)
        for text, _ in called(module)
        if text in leaving
    ]
    assert [] == sorted(wrong)


def test_nothing_is_pickled_and_no_shell_is_started() -> None:
    """Run directories come from strangers, and servers are started from argument lists."""
    wrong = []
    for module in modules():
        wrong += [f"{module} imports {name}" for name in set(imports(module)) if name.split(".")[0] in UNSAFE]
        for text, call in called(module):
            flags = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            if text in {"os.system", "eval", "exec"} or flags.get("shell", "False") != "False":
                wrong.append(f"{module} calls {text}")
            if text in {"np.load", "numpy.load"} and flags.get("allow_pickle") != "False":
                wrong.append(f"{module} calls {text} without allow_pickle=False")
    assert [] == sorted(wrong)


def test_modules_and_functions_stay_small() -> None:
    """A file holds one noun and a function one thought; the median says whether that is the habit."""
    long_modules = [f"{m}: {m.text.count(chr(10))} lines" for m in modules() if m.text.count("\n") > MODULE_LINES]
    sizes = [size for module in modules() for size in functions(module)]
    long_functions = [f"{name}: {lines} lines" for name, lines in sizes if lines > FUNCTION_LINES]
    assert [] == long_modules + long_functions
    assert 10 >= statistics.median(lines for _, lines in sizes)


def test_every_module_starts_the_same_way() -> None:
    """A docstring that says what it is, annotations that are never evaluated, and no drawer called utils."""
    wrong = [f"{m} has no docstring" for m in modules() if not ast.get_docstring(m.tree)]
    code = [m for m in modules() if len(m.tree.body) > 1]
    wrong += [f"{m} lacks the annotations import" for m in code if "__future__.annotations" not in imports(m)]
    wrong += [f"{m} is named after nothing" for m in modules() if m.name.split(".")[-1] in DRAWERS]
    assert [] == wrong


def test_every_folder_of_code_is_a_package() -> None:
    """A folder without `__init__.py` is left out of the wheel without a word."""
    folders = {module.path.parent for module in modules()}
    assert [] == sorted(str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists())


def test_every_data_file_is_shipped() -> None:
    """A file that no pattern of setup.cfg names is missing from the wheel, and nobody notices in the tree."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    patterns = settings["options.package_data"]["*"].split()
    lost = []
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()):
        home = next(parent for parent in path.parents if (parent / "__init__.py").exists() or parent == ROOT)
        inside = path.relative_to(home).as_posix()
        shipped = path.suffix == ".py" or any(fnmatch.fnmatch(inside, pattern) for pattern in patterns)
        if not shipped and "__pycache__" not in path.parts:
            lost.append(str(path.relative_to(ROOT)))
    assert [] == lost


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_carries_our_constant_and_its_types(package: str) -> None:
    """The start-up guard reads `PROJECT`; `py.typed` makes the annotations count for users."""
    (found,) = [m for m in modules() if m.name == package]
    constants = {
        target.id: ast.literal_eval(node.value)
        for node in found.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert "slo-goodput" == constants.get("PROJECT")
    assert (ROOT / package / "py.typed").exists()
