"""The compiled loop is ready before the first test's time counts."""

import pytest

from tests.support.simulated import compile_simulator


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    compile_simulator()
