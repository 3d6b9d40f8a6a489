"""Whatever bytes come, in whatever pieces: an answer or a closed connection, and others are served."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.serving.http import Limits
from tests.support.raw_http import RawConnection, echo_body, serving
from tests.support.sidecars import until

GOOD = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc"
CHUNKED = b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


def spoiled(message: bytes, place: int, noise: bytes, cut: int) -> bytes:
    place %= len(message)
    return message[:place] + noise + message[place + cut :]


NOISE = st.one_of(
    st.binary(min_size=1, max_size=200),
    st.builds(
        spoiled,
        st.sampled_from([GOOD, CHUNKED, GOOD * 3]),
        st.integers(0, 500),
        st.binary(max_size=8),
        st.integers(0, 8),
    ),
)


@settings(max_examples=80, deadline=None)
@given(data=NOISE, pieces=st.integers(1, 5))
def test_noise_gets_an_answer_or_an_end_and_others_are_served(data: bytes, pieces: int) -> None:
    async def run() -> None:
        limits = Limits(body_bytes=1000, header_bytes=400, linger_seconds=1000.0)
        async with serving(echo_body, limits) as server:
            noisy = await RawConnection.open(server.port)
            size = -(-len(data) // pieces)
            for start in range(0, len(data), size):
                await noisy.send(data[start : start + size])
                await asyncio.sleep(0)
            other = await RawConnection.open(server.port)
            await other.send(GOOD)
            assert await other.answer() == (200, b"/x abc")
            server.sweep(asyncio.get_running_loop().time() + 10_000.0)
            server.sweep(asyncio.get_running_loop().time() + 99_999.0)
            await noisy.vanish()
            await until(lambda: server.connections <= 1)
            await other.close()
            assert server.receiving_bytes == 0

    asyncio.run(run())
