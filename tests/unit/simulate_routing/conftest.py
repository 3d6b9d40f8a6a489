"""The compiled loop is ready before the first test's time counts."""

import pytest

from slimscale.simulate.routing.scene import Scene, six
from tests.support.routed import route


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    route(Scene(six()), rate=100.0, seconds=0.1)
