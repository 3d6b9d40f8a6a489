"""What reaches the API server: fenced, in order, each write on its own."""

import json

import pytest

from slimscale.act.apply import Applier
from slimscale.act.permissions import allowed
from slimscale.domain.plan import Operation, PatchTemplate, Plan, ResizePod, SetThreads
from slimscale.exceptions import Conflict, NotPermitted, Unavailable
from slimscale.kubeapi.ports import Json, Refused
from tests.support.fake_kube import Call, FakeKube

POD = "/api/v1/namespaces/team/pods/sim-{}"
DEPLOYMENT = "/apis/apps/v1/namespaces/team/deployments/sim"


def _pod(index: int) -> Json:
    return {
        "metadata": {
            "name": f"sim-{index}",
            "uid": f"uid-{index}",
            "finalizers": ["others/finalizer"],
            "annotations": {"theirs": "kept"},
        },
        "spec": {
            "containers": [
                {"name": "proxy", "resources": {"limits": {"cpu": "1"}}},
                {
                    "name": "sim",
                    "image": "sim:1",
                    "resources": {
                        "requests": {"cpu": "1", "memory": "256Mi"},
                        "limits": {"cpu": "2", "memory": "512Mi"},
                    },
                },
            ]
        },
    }


@pytest.fixture
def kube() -> FakeKube:
    fake = FakeKube()
    for index in range(2):
        fake.add("/api/v1/namespaces/team/pods", _pod(index))
    template = {
        "spec": {"containers": [{"name": "sim", "env": [{"name": "A", "value": "S3CR3T"}]}]}
    }
    fake.add(
        "/apis/apps/v1/namespaces/team/deployments",
        {"metadata": {"name": "sim", "uid": "uid-target"}, "spec": {"template": template}},
    )
    return fake


def _threads(index: int = 0, uid: str = "") -> SetThreads:
    return SetThreads(f"sim-{index}", uid or f"uid-{index}", 6, "Target")


def _resize(index: int = 0) -> ResizePod:
    return ResizePod(f"sim-{index}", f"uid-{index}", "sim", None, 1500, "Target")


def _template(uid: str = "uid-target") -> PatchTemplate:
    env = (("OMP_NUM_THREADS", "6"),)
    return PatchTemplate("Deployment", "sim", uid, "sim", env, 1000, 1500, 6, "Target")


async def _apply(kube: FakeKube, *operations: Operation) -> list[str]:
    result = await Applier(kube).apply(Plan(operations), namespace="team", lease_held=lambda: True)
    return [r.reason or "ok" for r in result.results]


async def test_only_the_named_containers_cpu_and_our_annotation_change(kube: FakeKube) -> None:
    assert await _apply(kube, _threads(), _resize()) == ["ok", "ok"]
    pod = kube.peek(POD.format(0))
    assert pod is not None
    assert pod["metadata"]["annotations"] == {"theirs": "kept", "slimscale.dev/threads": "6"}
    assert pod["metadata"]["finalizers"] == ["others/finalizer"]
    proxy, sim = pod["spec"]["containers"]
    assert proxy["resources"] == {"limits": {"cpu": "1"}}
    assert sim["resources"] == {
        "requests": {"cpu": "1", "memory": "256Mi"},
        "limits": {"cpu": "1500m", "memory": "512Mi"},
    }
    assert sim["image"] == "sim:1"


async def test_no_write_names_memory_finalizers_or_owners(kube: FakeKube) -> None:
    await _apply(kube, _threads(), _resize(), _template())
    text = json.dumps([call.body for call in kube.writes])
    for word in ("memory", "finalizers", "ownerReferences", "image"):
        assert word not in text


async def test_the_template_is_changed_in_our_fields_only(kube: FakeKube) -> None:
    assert await _apply(kube, _template()) == ["ok"]
    deployment = kube.peek(DEPLOYMENT)
    assert deployment is not None
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "A", "value": "S3CR3T"} in container["env"]
    assert {"name": "OMP_NUM_THREADS", "value": "6"} in container["env"]
    assert container["resources"]["limits"] == {"cpu": "1500m"}


@pytest.mark.parametrize("operation", [_threads(uid="old"), _template(uid="old")])
async def test_a_late_write_does_not_hit_another_object_of_the_name(
    kube: FakeKube, operation: Operation
) -> None:
    before = (kube.peek(POD.format(0)), kube.peek(DEPLOYMENT))
    assert await _apply(kube, operation) == ["Conflict"]
    assert (kube.peek(POD.format(0)), kube.peek(DEPLOYMENT)) == before


async def test_a_deleted_target_is_not_revived(kube: FakeKube) -> None:
    kube.remove(DEPLOYMENT)
    assert await _apply(kube, _template()) == ["Conflict"]
    assert kube.peek(DEPLOYMENT) is None


async def test_the_servers_word_for_another_uid_is_a_conflict_too(kube: FakeKube) -> None:
    """Pods answer 422, since a uid is immutable."""
    kube.before = lambda call: Refused("invalid", 422, ("metadata.uid: field is immutable",))
    assert await _apply(kube, _threads()) == ["Conflict"]


async def test_a_failing_pod_does_not_stop_the_others(kube: FakeKube) -> None:
    kube.remove(POD.format(0))
    assert await _apply(kube, _threads(0), _threads(1)) == ["Conflict", "ok"]


async def test_a_pods_cpu_is_not_touched_when_its_threads_could_not_be_written(
    kube: FakeKube,
) -> None:
    kube.forbidden.add(("patch", "pods"))
    assert await _apply(kube, _threads(), _resize()) == ["NotPermitted", "Unavailable"]
    assert not any(call.resource == "pods/resize" for call in kube.calls)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Refused("pod is invalid", 422, ("spec: limits must not be removed",)), "Refused"),
        (NotPermitted("exceeded quota"), "NotPermitted"),
        (Unavailable("timeout"), "Unavailable"),
        (Conflict("modified"), "Conflict"),
    ],
)
async def test_each_answer_has_its_reason_and_its_words(
    kube: FakeKube, error: Exception, reason: str
) -> None:
    kube.before = lambda call: error
    result = await Applier(kube).apply(
        Plan((_resize(),)), namespace="team", lease_held=lambda: True
    )
    assert result.results[0].reason == reason
    expected = error.causes[0] if isinstance(error, Refused) else str(error)
    assert result.results[0].message == expected


async def test_a_conflict_over_our_own_fields_is_settled_by_taking_them(kube: FakeKube) -> None:
    answers = iter([Conflict("conflict with kubectl: .spec.template..."), None])
    kube.before = lambda call: next(answers)
    assert await _apply(kube, _template()) == ["ok"]


async def test_nothing_is_written_once_the_lease_is_lost(kube: FakeKube) -> None:
    held = iter([True, False, False])
    result = await Applier(kube).apply(
        Plan((_threads(0), _threads(1), _resize(1))),
        namespace="team",
        lease_held=lambda: next(held),
    )
    assert [r.ok for r in result.results] == [True, False, False]
    assert len(kube.writes) == 1


async def test_all_writes_are_in_the_table_of_permissions_and_counted(kube: FakeKube) -> None:
    seen: list[tuple[str, str]] = []
    await Applier(kube, on_write=lambda resource, result: seen.append((resource, result))).apply(
        Plan((_threads(), _resize(), _template())), namespace="team", lease_held=lambda: True
    )
    assert seen == [("pods", "Success"), ("pods/resize", "Success"), ("deployments", "Success")]
    assert all(allowed(verb, resource) for verb, resource in kube.used)


async def test_logs_of_a_failed_write_hold_no_value_of_a_variable(
    kube: FakeKube, caplog: pytest.LogCaptureFixture
) -> None:
    operation = PatchTemplate(
        "Deployment", "sim", "uid-target", "sim", (("TOKEN", "S3CR3T"),), None, None, 6, "Target"
    )

    def fail(_call: Call) -> Exception:
        return Unavailable("timeout")

    kube.before = fail
    with caplog.at_level("DEBUG"):
        await _apply(kube, operation)
    assert caplog.records
    assert "S3CR3T" not in "".join(str(record.__dict__) for record in caplog.records)
