"""The router knows the pods from the API server alone, and keeps them when it is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from slimscale.serving.router import endpoints
from slimscale.serving.router.endpoints import ApiServer, Endpoint, EndpointWatch
from tests.support.fake_slices import FakeSlices, fake_slices, slice_of
from tests.support.routers import until

pytestmark = pytest.mark.component


class Watched:
    """A running watch and the lists that it has told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Endpoint]] = []
        self.watch: EndpointWatch

    @property
    def ready(self) -> list[str]:
        return sorted(one.name for one in self.told[-1].values() if one.ready)

    async def until_ready(self, *names: str) -> None:
        await until(lambda: self.told and self.ready == list(names))


@asynccontextmanager
async def watching(
    server: FakeSlices, *, token_file: Path | None = None, silence_seconds: float = 30.0
) -> AsyncIterator[Watched]:
    watched = Watched()
    watched.watch = EndpointWatch(
        ApiServer("127.0.0.1", server.port, token_file=token_file, silence_seconds=silence_seconds),
        namespace="default",
        service="digits-pods",
        changed=watched.told.append,
        rng=Random(1),
    )
    task = asyncio.create_task(watched.watch.run())
    try:
        yield watched
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "_FIRST_PAUSE_SECONDS", 0.01)


async def test_pods_come_and_go_with_the_events() -> None:
    async with fake_slices() as server:
        server.slices = [slice_of("s1", ("a", "10.0.0.1"), ("b", "10.0.0.2"))]
        async with watching(server) as watched:
            await watched.until_ready("a", "b")
            await server.watching.wait()
            server.send("ADDED", slice_of("s2", ("c", "10.0.0.3")))
            await watched.until_ready("a", "b", "c")
            server.send("MODIFIED", slice_of("s1", ("b", "10.0.0.2")))
            await watched.until_ready("b", "c")
            server.send("DELETED", slice_of("s2"))
            await watched.until_ready("b")
        assert server.asked[0].startswith(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
            "?labelSelector=kubernetes.io%2Fservice-name%3Ddigits-pods"
        )


async def test_pods_that_are_not_ready_or_on_their_way_out_get_nothing_new() -> None:
    async with fake_slices() as server:
        server.slices = [
            slice_of(
                "s1",
                ("starting", "10.0.0.1", {"ready": False}),
                ("leaving", "10.0.0.2", {"ready": False, "serving": True, "terminating": True}),
                ("leaving-but-published", "10.0.0.3", {"ready": True, "terminating": True}),
                ("unknown", "10.0.0.4", {}),
                ("well", "10.0.0.5"),
            )
        ]
        async with watching(server) as watched:
            await watched.until_ready("unknown", "well")
            assert len(watched.told[-1]) == 5


async def test_one_pod_in_two_slices_is_one_pod() -> None:
    async with fake_slices() as server:
        server.slices = [
            slice_of("old", ("a", "10.0.0.1", {"ready": False})),
            slice_of("new", ("a", "10.0.0.9")),
        ]
        async with watching(server) as watched:
            await watched.until_ready("a")
            assert watched.told[-1]["a"].host == "10.0.0.9"


@pytest.mark.parametrize("fault", ["in the stream", "as the answer"])
async def test_a_version_that_is_too_old_leads_to_a_new_list(fault: str) -> None:
    async with fake_slices() as server:
        server.slices = [slice_of("s1", ("a", "10.0.0.1"))]
        async with watching(server) as watched:
            await server.watching.wait()
            server.slices = [slice_of("s1", ("b", "10.0.0.2"))]
            if fault == "in the stream":
                server.send("ERROR", {"code": 410, "reason": "Expired"})
            else:
                server.watch_status = 410
                server.end_watches()
            await watched.until_ready("b")
            server.watch_status = 200
            assert server.lists >= 2
            assert watched.watch.failures == 0  # as the API means it: no fault, no pause


async def test_an_ended_watch_goes_on_from_its_last_version_without_a_new_list() -> None:
    async with fake_slices() as server:
        server.slices = [slice_of("s1", ("a", "10.0.0.1"))]
        async with watching(server) as watched:
            await server.watching.wait()
            server.send("BOOKMARK", {"metadata": {"resourceVersion": "77"}})
            await until(lambda: watched.watch.last_contact)
            server.end_watches()
            await server.watching.wait()
            assert "resourceVersion=77" in server.asked[-1]
            assert server.lists == 1
            server.send("MODIFIED", slice_of("s1", ("a", "10.0.0.1"), ("b", "10.0.0.2")))
            await watched.until_ready("a", "b")


async def test_a_watch_that_falls_silent_is_opened_anew() -> None:
    async with fake_slices() as server:
        server.slices = [slice_of("s1", ("a", "10.0.0.1"))]
        async with watching(server, silence_seconds=0.05) as watched:
            await server.watching.wait()
            server.slices = [slice_of("s1", ("b", "10.0.0.2"))]
            await watched.until_ready("b")
            assert {one.name: one.host for one in watched.told[-1].values()} == {"b": "10.0.0.2"}


async def test_the_last_pods_stay_while_the_api_server_is_away() -> None:
    async with fake_slices() as server:
        server.slices = [slice_of("s1", ("a", "10.0.0.1"))]
        async with watching(server) as watched:
            await server.watching.wait()
            await server.stop()
            await until(lambda: watched.watch.failures >= 3)
            assert watched.ready == ["a"]
            assert len(watched.told) == 1
            server.slices = [slice_of("s1", ("b", "10.0.0.2"))]
            await server.start()
            await watched.until_ready("b")


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_an_error_instead_of_a_list_is_no_empty_list(status: int) -> None:
    async with fake_slices() as server:
        server.slices = [slice_of("s1", ("a", "10.0.0.1"))]
        async with watching(server) as watched:
            await server.watching.wait()
            server.list_status = server.watch_status = status
            server.end_watches()
            await until(lambda: watched.watch.failures >= 2)
            assert watched.ready == ["a"]
            server.list_status = server.watch_status = 200
            await server.watching.wait()


async def test_a_token_that_was_rotated_is_used_at_the_next_connection(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with fake_slices() as server, watching(server, token_file=token):
        await server.watching.wait()
        token.write_text("second\n")
        server.end_watches()
        await server.watching.wait()
        assert server.tokens[0] == "Bearer first"
        assert server.tokens[-1] == "Bearer second"


async def test_events_that_make_no_sense_lead_to_a_new_list() -> None:
    async with fake_slices() as server:
        server.slices = [slice_of("s1", ("a", "10.0.0.1"))]
        async with watching(server) as watched:
            await server.watching.wait()
            server.slices = [slice_of("s1", ("b", "10.0.0.2"))]
            server.send("MODIFIED", {"what": "is this"})
            await watched.until_ready("b")
