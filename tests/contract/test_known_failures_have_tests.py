"""docs/pitfalls.md promises a test for each known failure: that the tests it names are there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.helm import ROOT

PAGE = ROOT / "docs/pitfalls.md"
GROUPS = {"A": 16, "B": 12, "C": 12, "D": 12, "E": 11, "F": 6, "G": 8, "H": 7}
"""The last number of each group; D13, keep-alive of gRPC, cannot occur: nothing here speaks it."""
NOT_HERE = {"A5", "A9", "B6", "B7", "C3", "C5", "D2", "D4", "E3", "E4", "F3", "G5", "G7"}
OUR_CODE = sorted(
    path for folder in ("operator", "images", "examples") for path in (ROOT / folder).rglob("*.py")
)


def rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    ]
    return [row for row in cells if re.fullmatch(r"[A-H][0-9]+", row[0])]


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def sessions_without_counts(code: str) -> int:
    """Calls of onnxruntime that leave the number of threads to onnxruntime."""
    found = 0
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("InferenceSession"):
            given = any(keyword.arg == "sess_options" for keyword in node.keywords)
            found += not (given or len(node.args) > 1)
    return found


def test_each_known_failure_has_one_row() -> None:
    wanted = [
        code
        for group, last in GROUPS.items()
        for number in range(1, last + 1)
        if (code := f"{group}{number}") not in NOT_HERE
    ]
    assert [row[0] for row in rows()] == wanted


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_tests_that_a_row_names_exist(row: list[str]) -> None:
    _, happened, here, tests = row
    assert "](https://github.com/" in happened
    assert here
    named = re.findall(r"`([^`]+)::([^`]+)`", tests)
    assert named
    assert len(named) == tests.count("`") // 2
    missing = [
        f"{file}::{function}"
        for file, function in named
        if not (ROOT / file).is_file() or function not in functions_of(ROOT / file)
    ]
    assert missing == []
    assert any(file.startswith("tests/") for file, _ in named), "one that needs no cluster"


def test_every_onnxruntime_session_is_given_its_thread_counts() -> None:
    """C9: it reads no variable of OpenMP's, and its own choice fails under a cpuset."""
    found = {
        str(path.relative_to(ROOT)): count
        for path in OUR_CODE
        if (count := sessions_without_counts(path.read_text(encoding="utf-8")))
    }
    assert found == {}
    assert sessions_without_counts("onnxruntime.InferenceSession('m.onnx')") == 1
    assert sessions_without_counts("ort.InferenceSession('m.onnx', sess_options=own)") == 0
