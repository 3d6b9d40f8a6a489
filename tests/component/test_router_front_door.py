"""What a client of the Open Inference Protocol gets from the router's door."""

import json
from pathlib import Path

import pytest

from slimscale.serving import headers as names
from tests.support.fake_sidecar import body_of, fake_sidecar, number_in
from tests.support.routers import running_router
from tests.support.routing_cases import telemetry

pytestmark = pytest.mark.component


async def test_the_service_looks_like_one_model(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        assert (await router.ask("GET", "/v2/health/live")).status == 200
        assert (await router.ask("GET", "/v2/health/ready")).status == 200
        server = json.loads((await router.ask("GET", "/v2")).body)
        assert server["extensions"] == ["binary_tensor_data"]
        assert (await router.ask("GET", "/v2/models/digits/ready")).status == 200
        model = json.loads((await router.ask("GET", "/v2/models/digits")).body)
        assert model["name"] == "digits"
        assert model["inputs"][0]["shape"] == [-1, 1]
        index = await router.ask("POST", "/v2/repository/index")
        assert json.loads(index.body)[0]["name"] == "digits"


async def test_metadata_known_once_is_told_while_no_pod_is_there(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        first = await router.ask("GET", "/v2/models/digits")
        router.set_pods()
        assert (await router.ask("GET", "/v2/models/digits")).body == first.body


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
async def test_the_body_goes_on_unchanged_and_path_and_headers_are_rewritten(
    tmp_path: Path, binary: bool
) -> None:
    body = body_of(7, rows=3)
    headers: dict[str, str] = {"content_type": "application/json"}
    if binary:
        headers = {
            "content_type": "application/octet-stream",
            "inference_header_content_length": str(len(body)),
        }
        body += b"\x00\xff\r\n\r\n" * 100
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        await router.infer(body, slimscale_deadline_ms="5000", x_secret="mine", **headers)
        sent = await pod.got.get()
    assert sent.body == body
    assert sent.path == "/v2/models/m-w100/infer"
    given = sent.headers
    assert given[b"content-type"].decode() == headers["content_type"]
    assert given.get(names.INFERENCE_HEADER_LENGTH) == (
        headers["inference_header_content_length"].encode() if binary else None
    )
    assert int(given[names.BATCH_CAP]) >= 3
    assert 0 < int(given[names.DEADLINE_MILLISECONDS]) <= 5000
    assert b"x-secret" not in given


async def test_the_answer_names_what_served_it_and_keeps_telemetry_in_the_house(
    tmp_path: Path,
) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        answer = await router.infer(body_of(41, request_id="mine-1"))
    assert answer.status == 200
    assert number_in(answer.body) == 41
    assert answer.headers[names.MODEL] == b"m-w100"
    assert answer.headers[names.POD] == b"a"
    assert answer.headers[names.REQUEST_ID] == b"mine-1"
    assert names.TELEMETRY not in answer.headers


async def test_a_request_without_an_id_gets_one_of_its_own(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        answers = [await router.infer() for _ in range(3)]
        named = await router.infer(body_of(1, request_id="x"), slimscale_request_id="header wins")
    ids = {answer.headers[names.REQUEST_ID] for answer in [*answers, named]}
    assert len(ids) == 4
    assert b"header wins" not in ids  # a blank is not plain: it is replaced, not passed on


@pytest.mark.parametrize(
    ("header", "value", "says"),
    [
        ("slimscale_deadline_ms", "soon", "Slimscale-Deadline-Ms: 'soon'; send a number"),
        ("slimscale_deadline_ms", "nan", "Slimscale-Deadline-Ms"),
        ("slimscale_deadline_ms", "-5", "Slimscale-Deadline-Ms"),
        (
            "slimscale_slo",
            "platinum",
            "no class; send milliseconds or a class of this service (gold",
        ),
        ("slimscale_slo", "1e999", "Slimscale-Slo"),
        ("slimscale_min_accuracy", "95%", "Slimscale-Min-Accuracy"),
        ("slimscale_min_accuracy", "0.9", "the most accurate width has 0.76"),
    ],
)
async def test_a_header_that_makes_no_sense_is_refused_by_name(
    tmp_path: Path, header: str, value: str, says: str
) -> None:
    async with (
        fake_sidecar("a") as pod,
        running_router(tmp_path, pod, sloClasses={"gold": 50}) as router,
    ):
        answer = await router.infer(None, **{header: value})
        assert answer.status == 400
        assert says in json.loads(answer.body)["error"]
        assert pod.got.empty()


async def test_a_minimum_accuracy_and_an_slo_of_the_request_choose_the_width(
    tmp_path: Path,
) -> None:
    async with fake_sidecar("a") as pod:
        pod.telemetry = telemetry(base=0.2, row=4.0)  # from 0.48 s at w025 to 4.2 s at w100
        async with running_router(
            tmp_path, pod, sloMilliseconds=10_000, sloClasses={"gold": 1000}
        ) as router:
            wide = await router.infer()
            narrow = await router.infer(None, slimscale_slo="gold")
            own = await router.infer(None, slimscale_slo="1000")
            accurate = await router.infer(None, slimscale_slo="gold", slimscale_min_accuracy="0.75")
    models = [one.headers[names.MODEL] for one in (wide, narrow, own, accurate)]
    assert models == [b"m-w100", b"m-w025", b"m-w025", b"m-w075"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v2/models/other/infer", 404),
        ("GET", "/v2/models/m-w100", 404),
        ("GET", "/v2/models/digits/infer", 405),
        ("DELETE", "/v2/models/digits", 405),
        ("POST", "/v2/repository/models/digits/load", 404),
        ("POST", "/v2/repository/models/digits/unload", 404),
        ("POST", "/v2/models/digits", 405),
        ("PUT", "/config", 404),
        ("POST", "/admin/reload", 404),
        ("GET", "/metrics", 404),
        ("GET", "/state", 404),
        ("GET", "/telemetry", 404),
    ],
)
async def test_nothing_else_is_served_on_the_data_port(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        answer = await router.ask(method, path)
        assert answer.status == status
        assert json.loads(answer.body)["error"]


async def test_the_status_port_takes_nothing_but_reading(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        for path in ("/state", "/metrics", "/healthz", "/readyz"):
            assert (await router.status(path)).status == 200
            refused = await router.client.request(
                b"POST", "127.0.0.1", router.router.status.port, path.encode(), timeout_seconds=5
            )
            assert refused.status == 405
        assert (await router.status("/state?stable=0&panic=6")).status == 400
        assert (await router.status("/state?stable=x")).status == 400


async def test_a_pods_own_refusal_of_a_bad_body_reaches_the_client_as_it_is(
    tmp_path: Path,
) -> None:
    from slimscale.serving.protocol.errors import error_response

    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        pod.answer_with = lambda _request: error_response(400, "inputs[0].shape: no rows")
        answer = await router.infer(b"{}")
        assert (answer.status, json.loads(answer.body)["error"]) == (
            400,
            "inputs[0].shape: no rows",
        )
        assert (await router.state()).pods[0].ejected is False


async def test_no_text_of_a_client_gets_into_metrics_or_state(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        await router.infer(
            body_of(1, request_id="SECRET-1"),
            slimscale_request_id="SECRET-2", slimscale_slo="SECRET-3", authorization="SECRET-4",
        )  # fmt: skip
        await router.infer(body_of(1, request_id="SECRET-5"), slimscale_slo="77")
        await router.ask("GET", "/v2/models/SECRET-6")
        pod.pool = "SECRET-7"
        await router.infer()
        text = (await router.status("/metrics")).body + (await router.status("/state")).body
    assert b"SECRET" not in text.replace(b'"pool":"SECRET-7"', b"").replace(
        b'"name":"SECRET-7"', b""
    )
