"""The phase schedule and the annotation that overrides it."""

from pathlib import Path

import pytest

from simserver.phases import Phase, PhaseFile, PhaseSelector, ScheduleError, parse_schedule


def test_a_schedule_goes_through_its_phases_and_starts_again() -> None:
    schedule = parse_schedule("light:60, heavy:30.5,blocking:10")
    seen = [schedule.phase_at(t) for t in (0, 59.9, 60, 90.4, 90.5, 100.4, 100.5, 160.5)]
    assert seen == [
        Phase.LIGHT, Phase.LIGHT, Phase.HEAVY, Phase.HEAVY, Phase.BLOCKING, Phase.BLOCKING,
        Phase.LIGHT, Phase.HEAVY,
    ]  # fmt: skip


def test_a_clock_that_stepped_back_gives_the_first_phase() -> None:
    assert parse_schedule("heavy:5,light:5").phase_at(-3.0) is Phase.HEAVY


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "empty"),
        ("light", "light:SECONDS"),
        ("light:0", "light:0"),
        ("light:-1", "light:-1"),
        ("light:nan", "light:nan"),
        ("light:inf", "light:inf"),
        ("light:1e9", "week"),
        ("light:60,heavier:60", "heavier"),
        (",".join(["light:1"] * 65), "65 entries"),
    ],
)
def test_a_bad_schedule_is_refused_and_the_message_names_the_fault(text: str, named: str) -> None:
    with pytest.raises(ScheduleError, match=named):
        parse_schedule(text)


class _Pod:
    """A selector whose annotation file and clock the test holds."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "phase"
        self.file = PhaseFile(self.path)
        self.selector = PhaseSelector(
            parse_schedule("light:60,heavy:60"), self.file, started_seconds=100.0
        )

    def at(self, seconds: float, annotation: str | None = None) -> Phase:
        if annotation is not None:
            self.path.write_text(annotation)
        return self.selector.current(100.0 + seconds)


def test_without_a_file_the_schedule_counts(tmp_path: Path) -> None:
    pod = _Pod(tmp_path)
    assert (pod.at(0), pod.at(61)) == (Phase.LIGHT, Phase.HEAVY)


@pytest.mark.parametrize("written", ["blocking", "Blocking\n", '"blocking"', "  blocking  "])
def test_the_annotation_overrides_the_schedule_until_it_is_emptied(
    tmp_path: Path, written: str
) -> None:
    pod = _Pod(tmp_path)
    assert pod.at(0, written) is Phase.BLOCKING
    assert pod.at(61) is Phase.BLOCKING
    assert pod.at(62, "") is Phase.HEAVY


def test_the_annotation_can_pause(tmp_path: Path) -> None:
    assert _Pod(tmp_path).at(0, "paused") is Phase.PAUSED


def test_a_value_that_is_no_phase_changes_nothing_and_is_counted_once(tmp_path: Path) -> None:
    pod = _Pod(tmp_path)
    pod.at(0, "heavy")
    assert pod.at(1, "hevy") is Phase.HEAVY
    assert pod.at(2) is Phase.HEAVY
    assert pod.file.rejected == 1
    assert "hevy" in pod.file.problem
    assert pod.at(3, "blocking") is Phase.BLOCKING
    assert pod.file.problem == ""


def test_bytes_that_are_no_text_do_not_stop_the_simulation(tmp_path: Path) -> None:
    pod = _Pod(tmp_path)
    pod.path.write_bytes(b"\xff\xfe\x00" * 1000)
    assert pod.at(0) is Phase.LIGHT
    assert pod.file.rejected == 1
