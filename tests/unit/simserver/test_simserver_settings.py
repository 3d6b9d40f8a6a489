"""The environment variables of the simulation."""

import pytest

from simserver.phases import Phase
from simserver.settings import SettingsError, read_settings


def test_without_variables_sixteen_threads_are_guessed_and_the_engine_is_a_child() -> None:
    settings = read_settings({})
    assert settings.threads == 16
    assert settings.engine is None
    assert [phase for phase, _ in settings.schedule.entries] == [
        Phase.LIGHT, Phase.HEAVY, Phase.BLOCKING,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["0", "-4", "1e3", "16.0", "+16", "1_6", "many", "257", "9" * 400])
def test_a_thread_count_that_makes_no_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match="SIM_THREADS"):
        read_settings({"SIM_THREADS": text})


@pytest.mark.parametrize(
    "environ", [{"SIMSERVER_SCHEDULE": "light"}, {"SIMSERVER_ENGINE": "somewhere"}]
)
def test_a_bad_schedule_or_engine_stops_the_start(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        read_settings(environ)


def test_the_engine_of_the_second_container_is_taken() -> None:
    assert read_settings({"SIMSERVER_ENGINE": "127.0.0.1:7070"}).engine == ("127.0.0.1", 7070)
