"""The console script without its packages."""

import sys

import pytest

from slimscale.cli.entry import run


def test_a_missing_package_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "slimscale.cli.main", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "typer" in said
    assert "pip install '.[cli,operator]'" in said
