"""The load driver: each way a request can end is told apart, and none is forgotten."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from e2e.load.driver import Driver, Payloads
from e2e.load.plan import make_plan
from e2e.load.tally import Run, Tally, read, tally

Answering = Callable[[dict[str, Any], bytes, int], bytes | None]
"""(document of the request, its whole body, number) -> bytes of the answer; None: close."""

WIDTH = "fashion-w050"


def logits_of(plan: dict[str, Any], number: int, width: str = WIDTH) -> list[float]:
    found: list[float] = plan["inputs"][number % len(plan["inputs"])]["logits"][width]
    return found


def answer(identity: str, logits: list[float], *, width: str = WIDTH, status: int = 200) -> bytes:
    body = json.dumps({"id": identity, "outputs": [{"name": "logits", "data": logits}]}).encode()
    return (
        f"HTTP/1.1 {status} X\r\nslimscale-model: {width}\r\nslimscale-pod: p1\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body


def number_of(identity: str) -> int:
    return int(identity.rsplit("-", 1)[1])


async def drive(plan: dict[str, Any], behave: Answering) -> tuple[Run, Tally]:
    """Run the driver against a server that behaves like this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
                body = await reader.readexactly(int(fields["content-length"]))
                length = int(fields.get("inference-header-content-length", len(body)))
                document = json.loads(body[:length])
                said = behave(document, body, number_of(document["id"]))
                if said is None:
                    break
                writer.write(said)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    plan["host"], plan["port"] = server.sockets[0].getsockname()
    lines: list[str] = []
    try:
        await Driver(plan, lambda text: lines.extend(text.splitlines())).run()
    finally:
        server.close()
        await server.wait_closed()
    run = read(lines)
    return run, tally(run, len(plan["arrivals"]))


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second of waiting for a second answer."""
    monkeypatch.setattr("e2e.load.driver.FLUSH_SECONDS", 0.05)


def plan_of(count: int, **settings: Any) -> dict[str, Any]:
    return make_plan("t", [0.0] * count, **settings)


def run_of(plan: dict[str, Any], behave: Answering) -> tuple[Run, Tally]:
    work: Awaitable[tuple[Run, Tally]] = drive(plan, behave)
    return asyncio.run(work)  # type: ignore[arg-type]


def test_right_answers_are_right_with_their_width_and_pod() -> None:
    plan = plan_of(9)
    run, counted = run_of(plan, lambda d, _b, n: answer(d["id"], logits_of(plan, n)))
    assert counted.flawless
    assert counted.right == 9
    assert {(one.model, one.pod) for one in run.ended} == {(WIDTH, "p1")}


@pytest.mark.parametrize(
    ("behave", "word"),
    [
        (lambda p, d, n: answer("t-99", logits_of(p, n)), "answer of 't-99'"),
        (lambda p, d, n: answer(d["id"], logits_of(p, n + 1)), "expected"),
        (lambda p, d, n: answer(d["id"], logits_of(p, n), width="fashion-w100"), "expected"),
        (lambda p, d, n: answer(d["id"], logits_of(p, n)[:9]), "9 logits"),
        (lambda p, d, n: answer(d["id"], logits_of(p, n), width="other"), "KeyError"),
    ],
)
def test_an_answer_that_is_not_the_requests_own_is_wrong(behave: Any, word: str) -> None:
    plan = plan_of(2)
    _, counted = run_of(plan, lambda d, _b, n: behave(plan, d, n))
    assert (counted.wrong, counted.lost, counted.flawless) == (2, 0, False)
    assert word in counted.details[0]


@pytest.mark.parametrize(
    ("status", "lost", "refused"), [(429, 0, 1), (503, 0, 1), (502, 1, 0), (504, 1, 0), (404, 1, 0)]
)
def test_early_refusals_are_counted_apart_from_losses(status: int, lost: int, refused: int) -> None:
    plan = plan_of(1)
    _, counted = run_of(plan, lambda d, _b, n: answer(d["id"], [], status=status))
    assert (counted.lost, counted.refused, counted.flawless) == (lost, refused, False)


def test_a_broken_connection_is_a_lost_request() -> None:
    plan = plan_of(1)
    _, counted = run_of(plan, lambda d, _b, n: None)
    assert (counted.lost, counted.resent) == (1, 0)
    assert "broke" in counted.details[0]


def test_where_the_plan_says_so_a_broken_connections_request_is_sent_again_and_counted() -> None:
    plan = plan_of(1, resend_cut=True)
    seen: list[str] = []

    def once_broken(document: dict[str, Any], _body: bytes, number: int) -> bytes | None:
        seen.append(document["id"])
        return answer(document["id"], logits_of(plan, number)) if len(seen) > 1 else None

    _, counted = run_of(plan, once_broken)
    assert (counted.right, counted.resent, seen) == (1, 1, ["t-0", "t-0"])


def test_no_answer_in_time_is_a_lost_request_and_what_comes_later_no_answer() -> None:
    plan = plan_of(1, deadline_seconds=0.05)
    _, counted = run_of(plan, lambda d, _b, n: b"HTTP/1.1 200 OK\r\n")
    assert (counted.lost, counted.right) == (1, 0)
    assert "deadline" in counted.details[0]


def test_a_second_answer_is_a_doubled_request() -> None:
    plan = plan_of(1)
    _, counted = run_of(plan, lambda d, _b, n: 2 * answer(d["id"], logits_of(plan, n)))
    assert counted.right == 1
    assert counted.doubled >= 1
    assert not counted.flawless


def test_binary_and_json_requests_carry_the_same_row() -> None:
    plan = plan_of(1)
    payloads = Payloads(plan)
    inputs = len(plan["inputs"])
    binary = payloads.request(inputs + 1, left_seconds=1.0)
    assert b"application/octet-stream" in binary
    assert b"slimscale-deadline-ms: 1000" in binary
    text = payloads.request(inputs, left_seconds=1.0).split(b"\r\n\r\n", 1)[1]
    assert len(json.loads(text)["inputs"][0]["data"]) == 784


def test_requests_without_an_end_and_runs_that_were_cut_off_are_lost() -> None:
    right = '[0,0.0,3.0,"right","m","p","",0]'
    counted = tally(read(['{"start": 1.0}', right, "not json"]), planned=3)
    assert (counted.right, counted.lost, counted.flawless) == (1, 2, False)
    assert "did not come to its end" in counted.details[0]


def test_an_end_that_is_written_twice_is_doubled() -> None:
    right = '[0,0.0,3.0,"right","m","p","",0]'
    counted = tally(read([right, right, '{"done": {"unasked": 0}}']), planned=1)
    assert (counted.doubled, counted.flawless) == (1, False)
