"""House rules that a reader of one file cannot see kept."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

import slimscale
from slimscale.api.validation import describe_errors, validate_simworkload
from tests.support.helm import CHART, ROOT

PACKAGE = ROOT / "operator/slimscale"
PURE = sorted(
    path for folder in ("api", "domain", "threads") for path in (PACKAGE / folder).rglob("*.py")
)
OUR_CODE = sorted(
    path
    for folder in ("operator", "tests", "e2e", "images", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if ".state" not in path.parts
)

IMPURE_MODULES = {
    "time", "os", "secrets", "socket", "subprocess", "threading", "asyncio", "logging", "random",
    "uuid", "platform", "shutil", "tempfile", "io", "sys",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "now", "utcnow", "today", "default_rng"}
UNPICKLERS = {
    "pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "jsonpickle",
}  # fmt: skip


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def called_name(call: ast.Call) -> str:
    """The dotted name that is called, `` for what is none."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def impurities(tree: ast.AST) -> list[str]:
    found = [
        name
        for name in imports(tree)
        if name.split(".")[0] in IMPURE_MODULES or name.startswith("numpy.random.default")
    ]
    found += [
        name
        for call in calls(tree)
        if (name := called_name(call)).rsplit(".", 1)[-1] in IMPURE_CALLS
    ]
    return found


def unsafe_loads(tree: ast.AST) -> list[str]:
    found = [name for name in imports(tree) if name.split(".")[0] in UNPICKLERS]
    for call in calls(tree):
        name = called_name(call)
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        allow = keywords.get("allow_pickle")
        if name == "torch.load":
            found.append(name)
        elif allow is not None and not (isinstance(allow, ast.Constant) and allow.value is False):
            found.append(f"{name}(allow_pickle)")
        elif name in {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}:
            found.append(name)
    return found


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_pure_core_reads_no_clock_random_source_environment_or_file(path: Path) -> None:
    assert impurities(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.monotonic()",
        "from datetime import datetime\ndatetime.now()",
        "import os\nos.environ",
        "import random",
        "import numpy\nnumpy.random.default_rng()",
        "open('x')",
    ],
)
def test_the_search_for_impurity_finds_it(code: str) -> None:
    assert impurities(ast.parse(code))


def test_nothing_loads_a_pickle() -> None:
    found = {
        str(path.relative_to(ROOT)): loads
        for path in OUR_CODE
        if (loads := unsafe_loads(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load('x', weights_only=True)",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import yaml\nyaml.load('x', Loader=yaml.Loader)",
    ],
)
def test_the_search_for_unpickling_finds_it(code: str) -> None:
    assert unsafe_loads(ast.parse(code))


def test_the_folder_operator_does_not_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator/__init__.py").exists()
    assert not list(ROOT.glob("operator.py"))
    assert not list(PACKAGE.glob("operator.py"))


def test_no_module_outgrows_its_reader() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in OUR_CODE
        if not path.is_relative_to(ROOT / "tests")
        and (lines := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }
    assert long == {}


def test_package_chart_and_changelog_carry_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert heading is not None
    assert {slimscale.__version__, chart["appVersion"], heading[1]} == {project["version"]}


EXAMPLES = [
    (path, document)
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if document and document.get("kind") == "SimWorkload"
]


def test_there_is_an_example() -> None:
    assert EXAMPLES


@pytest.mark.parametrize(
    ("path", "example"), EXAMPLES, ids=lambda value: getattr(value, "name", "")
)
def test_every_example_is_a_valid_simworkload(path: Path, example: dict[str, object]) -> None:
    metadata = example["metadata"]
    assert isinstance(metadata, dict)
    try:
        validate_simworkload({**example, "metadata": {"namespace": "default", **metadata}})
    except ValidationError as error:
        pytest.fail(f"{path.name}: {describe_errors(error)}")
