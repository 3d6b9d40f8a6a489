from pathlib import Path

import pytest

from e2e import images
from e2e.cluster import kind, node_image
from e2e.cluster.pins import CONTROL_PLANE, MODULES, OFFICIAL_DEBIAN, OFFICIAL_PYTHON


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(images, "ROOT", tmp_path)
    (tmp_path / "images/tool").mkdir(parents=True)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.py").write_text("print(1)")
    (tmp_path / "other.txt").write_text("not copied")
    (tmp_path / "images/tool/Containerfile").write_text(
        f"ARG BASE={OFFICIAL_PYTHON}\nFROM ${{BASE}}\nCOPY --chown=1:1 src \\\n  /app\n"
        "COPY --from=build /x /x\n"
    )
    return tmp_path


def tool(project: Path) -> images.Image:
    return images.Image("tool", project / "images/tool/Containerfile")


def test_the_tag_follows_what_is_copied_and_nothing_else(project: Path) -> None:
    before = tool(project).key("base")
    (project / "other.txt").write_text("changed")
    (project / "src/__pycache__").mkdir()
    (project / "src/__pycache__/main.pyc").write_text("cache")
    assert tool(project).key("base") == before
    (project / "src/main.py").write_text("print(2)")
    assert tool(project).key("base") != before


def test_another_base_is_another_image(project: Path) -> None:
    assert tool(project).key("one") != tool(project).key("two")


def test_every_image_builds_for_users_from_an_official_base() -> None:
    found = images.known()
    assert {"operator", "simserver", "prometheus"} <= set(found)
    assert {image.base for image in found.values()} == {OFFICIAL_PYTHON, OFFICIAL_DEBIAN}


def test_a_changed_recipe_of_the_node_image_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in node_image.RECIPE.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = node_image.key()
    monkeypatch.setattr(node_image, "RECIPE", tmp_path)
    assert node_image.key() == before
    (tmp_path / "prepare.sh").write_text("exit 0")
    assert node_image.key() != before


def test_the_node_image_holds_every_program_that_it_links() -> None:
    built = {program.name for module in MODULES for program in module.programs}
    assert {*node_image.NODE_PROGRAMS, *CONTROL_PLANE, "etcd", "coredns"} <= built


def test_a_half_made_cluster_has_no_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "STAMP", tmp_path / "cluster.json")
    assert kind.current() is None
    (tmp_path / "cluster.json").write_text('{"engine": "podman"')
    assert kind.current() is None


def test_restarted_nodes_are_a_reason_to_make_the_cluster_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = kind._key(from_source=True)
    stamp = kind.Stamp("podman", True, key, {"node": "yesterday"})
    monkeypatch.setattr(kind, "nodes", lambda engine: {"node": "today"})
    assert "restarted" in kind.problem(stamp)
    assert "another recipe" in kind.problem(kind.Stamp("podman", False, key, {}))
