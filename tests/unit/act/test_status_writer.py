"""Writing a status: fenced, only what differs, others' fields left alone."""

import pytest

from slimscale.act.status_writer import StatusWriter
from slimscale.exceptions import Unavailable
from slimscale.kubeapi.ports import Json, Refused
from tests.support.fake_kube import FakeKube

COLLECTION = "/apis/slimscale.dev/v1alpha1/namespaces/team/simworkloads"
PATH = f"{COLLECTION}/sim"


@pytest.fixture
def kube() -> FakeKube:
    fake = FakeKube()
    metadata = {"name": "sim", "namespace": "team", "uid": "uid-cr", "finalizers": ["theirs"]}
    fake.add(COLLECTION, {"metadata": metadata, "spec": {"threads": {"max": 8}}})
    return fake


def _status(ready: str, rate: float = 100.0) -> Json:
    condition = {"type": "Ready", "status": ready, "reason": "X", "observedGeneration": 1}
    return {"conditions": [condition], "measuredTasksPerSecond": rate}


async def test_only_the_status_is_written_and_only_when_it_differs(kube: FakeKube) -> None:
    writer = StatusWriter(kube)
    for _ in range(3):
        thing = kube.peek(PATH)
        assert thing is not None
        stands = await writer.write(thing, _status("True"), now_seconds=1000.0)
        assert stands == _status("True")
    assert [(call.verb, call.resource) for call in kube.writes] == [
        ("patch", "simworkloads/status")
    ]
    thing = kube.peek(PATH)
    assert thing is not None
    assert thing["metadata"]["finalizers"] == ["theirs"]
    assert thing["spec"] == {"threads": {"max": 8}}
    assert thing["metadata"]["generation"] == 1


async def test_fields_that_are_gone_are_removed(kube: FakeKube) -> None:
    writer = StatusWriter(kube)
    first, second = _status("True"), _status("False")
    del second["measuredTasksPerSecond"]
    for status in (first, second):
        thing = kube.peek(PATH)
        assert thing is not None
        await writer.write(thing, status, now_seconds=1000.0)
    thing = kube.peek(PATH)
    assert thing is not None
    assert thing["status"] == second


async def test_an_object_that_was_deleted_or_made_anew_is_left_alone(kube: FakeKube) -> None:
    old = kube.peek(PATH)
    assert old is not None
    kube.remove(PATH)
    writer = StatusWriter(kube)
    assert await writer.write(old, _status("True"), now_seconds=1000.0) == {}
    kube.add(COLLECTION, {"metadata": {"name": "sim", "namespace": "team", "uid": "uid-new"}})
    assert await writer.write(old, _status("True"), now_seconds=1000.0) == {}
    thing = kube.peek(PATH)
    assert thing is not None
    assert "status" not in thing


async def test_a_write_that_failed_is_not_taken_for_done(kube: FakeKube) -> None:
    writer = StatusWriter(kube)
    thing = kube.peek(PATH)
    assert thing is not None
    kube.before = lambda call: Unavailable("timeout")
    with pytest.raises(Unavailable):
        await writer.write(thing, _status("True"), now_seconds=1000.0)
    kube.before = None
    assert await writer.write(thing, _status("True"), now_seconds=1001.0) == _status("True")


async def test_a_status_that_the_crd_does_not_take_is_an_error_that_shows(kube: FakeKube) -> None:
    thing = kube.peek(PATH)
    assert thing is not None
    kube.before = lambda call: Refused("status.pods: too many", 422)
    with pytest.raises(Refused):
        await StatusWriter(kube).write(thing, _status("True"), now_seconds=1000.0)
