import sys
from types import SimpleNamespace

import pytest

from slimscale.inpod import adapters


class FakeLibrary:
    def __init__(self, api: str, prefix: str) -> None:
        self.internal_api = api
        self.prefix = prefix
        self.threads = 0

    def set_num_threads(self, threads: int) -> None:
        self.threads = threads


@pytest.fixture(autouse=True)
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> list[FakeLibrary]:
    libraries: list[FakeLibrary] = []
    controller = SimpleNamespace(lib_controllers=libraries)
    fake = SimpleNamespace(ThreadpoolController=lambda: controller)
    monkeypatch.setitem(sys.modules, "threadpoolctl", fake)
    for name in ("torch", "numba"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return libraries


def test_openblas_never_gets_more_than_it_was_built_for(no_libraries: list[FakeLibrary]) -> None:
    openblas, openmp = FakeLibrary("openblas", "libopenblas"), FakeLibrary("openmp", "libgomp")
    no_libraries += [openblas, openmp]
    assert adapters.apply_to_libraries(256) == {"libopenblas": 64, "libgomp": 256}
    assert (openblas.threads, openmp.threads) == (64, 256)


def test_numba_is_clamped_to_its_launch_count(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[int] = []
    numba = SimpleNamespace(set_num_threads=got.append, config=SimpleNamespace(NUMBA_NUM_THREADS=4))
    monkeypatch.setitem(sys.modules, "numba", numba)
    assert adapters.apply_to_libraries(9) == {"numba": 4}
    assert got == [4]


def test_torch_gets_the_intra_op_count_only(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=got.append))
    assert adapters.apply_to_libraries(3) == {"torch": 3}
    assert got == [3]


def test_a_process_without_libraries_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert adapters.apply_to_libraries(3) == {}
    assert "torch" not in sys.modules


def test_no_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        adapters.apply_to_libraries(0)


def test_real_native_pools_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "threadpoolctl")
    import numpy as np
    import threadpoolctl

    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpoolctl.threadpool_limits():
        applied = adapters.apply_to_libraries(1)
        counts = {pool["prefix"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
    assert applied == counts
    assert applied
