"""The table that `simserver sweep` writes."""

from simserver.settings import read_settings
from simserver.sweep import Measurement, tables


def _measured(rates: dict[int, tuple[float, ...]]) -> list[Measurement]:
    return [
        Measurement("light", 2.0, threads, repeat, rate, 0.5)
        for threads, repeated in rates.items()
        for repeat, rate in enumerate(repeated)
    ]


def _row(text: str, phase: str, quota: str) -> list[str]:
    section = text.split(f"## {phase}\n")[1].split("## ", maxsplit=1)[0]
    line = next(line for line in section.splitlines() if line.startswith(f"| {quota} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_best_count_is_compared_with_floor_of_quota_and_with_sixteen_by_medians() -> None:
    measured = _measured(
        {1: (300.0, 310.0, 10.0), 2: (100.0, 150.0, 900.0), 16: (50.0, 50.0, 50.0)}
    )
    row = _row(tables(measured, settings=read_settings({}), seconds=1.0), "light", "2")
    assert row == ["2", "**300 (10-310)**", "150 (100-900)", "50 (50-50)", "1", "2.00", "6.00"]


def test_a_sweep_without_sixteen_threads_still_gives_a_table() -> None:
    text = tables(_measured({1: (3.0,), 2: (6.0,)}), settings=read_settings({}), seconds=1.0)
    assert _row(text, "light", "2")[-3:] == ["2", "1.00", "-"]
