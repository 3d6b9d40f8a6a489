"""Laws of the queues and of the whole sidecar: rows stay with their owners, counts end at zero."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.routing.queues import BatchQueues, Entry, QueueKey, QueueLimits
from slimscale.serving import headers as names
from slimscale.serving.protocol import InvalidRequest, parse_request
from tests.support.fake_model_server import FakeModelServer
from tests.support.sidecars import Asker, with_sidecar

REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.integers(1, 16),
        st.sampled_from(["digits-w050", "digits-w100"]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=12, deadline=None)
@given(requests=REQUESTS)
def test_each_caller_gets_exactly_its_rows(requests: list[tuple[int, int, str]]) -> None:
    async def run() -> None:
        server = FakeModelServer("digits-w050", "digits-w100")
        with TemporaryDirectory() as folder:
            async with with_sidecar(Path(folder), server, maxRows=16) as (sidecar, asker):
                values = [
                    [1000.0 * number + row for row in range(rows)]
                    for number, (rows, _, _) in enumerate(requests)
                ]
                before = len(server.batches)
                answers = await asyncio.gather(
                    *(
                        asker.infer(own, model=model, headers={names.BATCH_CAP: b"%d" % cap})
                        for own, (_, cap, model) in zip(values, requests, strict=True)
                    )
                )
                for own, answer in zip(values, answers, strict=True):
                    assert Asker.values(answer) == [10.0 * value for value in own]
                assert sum(server.batches[before:]) == sum(map(len, values))
                assert max(server.batches) <= 16
                assert sidecar.batcher.pending == 0

    asyncio.run(run())


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 9), st.integers(1, 9), st.integers(0, 50)),
        st.tuples(st.just("remove"), st.integers(0, 99)),
        st.tuples(st.just("take"), st.integers(0, 60)),
        st.tuples(st.just("expire"), st.integers(0, 60)),
    ),
    max_size=80,
)


@given(actions=ACTIONS)
def test_no_request_is_lost_or_taken_twice_and_the_counts_are_right(
    actions: list[tuple[str, ...]],
) -> None:
    queues: BatchQueues[int] = BatchQueues(QueueLimits(8, 10_000, 10_000_000))
    inside: dict[int, tuple[QueueKey, Entry[int]]] = {}
    made = 0
    for verb, *numbers in actions:
        first, *more = map(int, numbers)
        if verb == "add":
            key = QueueKey(f"m{first % 2}", (first % 3,))
            entry = Entry(made, first, 10, more[0], float(more[1]), 0.0)
            queues.add(key, entry)
            inside[made] = (key, entry)
            made += 1
        elif verb == "remove" and first in inside:
            assert queues.remove(*inside.pop(first))
        elif verb == "expire":
            for _, entry in list(queues.expired(float(first))):
                assert entry.deadline <= first
                del inside[entry.item]
        elif verb == "take" and (next_key := queues.next_key()) is not None:
            taken = queues.take(next_key, float(first), lambda rows: 1.0 + rows)
            for entry in (*taken.batch, *taken.late):
                del inside[entry.item]
            if taken.batch:
                cap = min(8, *(max(entry.cap, entry.rows) for entry in taken.batch))
                assert taken.rows <= max(cap, taken.batch[0].rows)
        assert queues.rows == sum(entry.rows for _, entry in inside.values())
        assert len(queues) == len(inside)
        for model in ("m0", "m1"):
            expected = sum(e.rows for key, e in inside.values() if key.model == model)
            assert queues.rows_of(model) == expected


@given(
    body=st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(
                        ["inputs", "name", "shape", "datatype", "data", "parameters", "outputs",
                         "binary_data_size", "id"]
                    ),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=20,
        ).map(lambda document: json.dumps(document).encode()),
    ),
    length=st.none() | st.integers(-5, 400),
)  # fmt: skip
def test_no_body_whatever_does_more_than_be_refused(body: bytes, length: int | None) -> None:
    headers = {} if length is None else {names.INFERENCE_HEADER_LENGTH: b"%d" % length}
    try:
        request = parse_request(headers, body)
    except InvalidRequest as refusal:
        assert 400 <= refusal.status < 500  # noqa: PT017 - either outcome is fine
    else:
        assert request.rows >= 1
