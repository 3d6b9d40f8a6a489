"""MLPerf's load generator, Server scenario, against one HTTP address: a neutral judge.

`python mlperf_judge.py JOB.json`: one job in, one line of JSON out. The load generator decides when each
query is due (Poisson), takes the latencies and says whether the run is valid: the given percentile under the
given latency. Queries go out on keep-alive connections; each answer is compared with the logits expected.
"""

import base64
import json
import queue
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg  # type: ignore[import-not-found,unused-ignore]

ID_DIGITS = 9
TOLERANCE = 2e-3


class Sender(threading.Thread):
    """One connection, one query at a time."""

    def __init__(self, job: dict[str, Any], images: list[dict[str, Any]], work: Any, faults: Any):
        super().__init__(daemon=True)
        self.job, self.images, self.work, self.faults = job, images, work, faults

    def run(self) -> None:
        stream = None
        while True:
            query = self.work.get()
            if query is None:
                return
            number, index = query
            try:
                if stream is None:
                    stream = self.connect()
                self.check(index, number, self.ask(stream, index, number))
            except (OSError, ValueError, KeyError, IndexError) as error:
                self.faults.append(f"{type(error).__name__}: {error}")
                stream = None
            # An answer that is wrong is completed too: the run then counts as failed.
            lg.QuerySamplesComplete([lg.QuerySampleResponse(number, 0, 0)])

    def connect(self) -> Any:
        connection = socket.create_connection((self.job["host"], self.job["port"]), timeout=30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection.makefile("rwb", buffering=65536)

    def ask(self, stream: Any, index: int, number: int) -> bytes:
        image = self.images[index]
        name = b"%0*d" % (ID_DIGITS, number % 10**ID_DIGITS)
        body = image["before"] + name + image["after"]
        stream.write(
            b"POST %s HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % (self.job["path"].encode(), len(body))
        )
        stream.write(body)
        stream.flush()
        status = stream.readline().split()
        if len(status) < 2:
            raise ValueError("the connection ended")
        length = 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            key, _, value = line.partition(b":")
            if key.lower() == b"content-length":
                length = int(value)
        answer: bytes = stream.read(length)
        if status[1] != b"200":
            raise ValueError(f"{status[1].decode()}: {answer[:100]!r}")
        return answer

    def check(self, index: int, number: int, body: bytes) -> None:
        answer = json.loads(body)
        if int(answer["id"]) != number % 10**ID_DIGITS:
            raise ValueError(f"answer of {answer['id']} for {number}")
        values, expected = answer["outputs"][0]["data"], self.images[index]["logits"]
        values = values[0] if len(values) == 1 else values
        for value, wanted in zip(values, expected, strict=True):
            if not abs(value - wanted) <= TOLERANCE * (1.0 + abs(wanted)):
                raise ValueError(f"logit {value}, expected {wanted}")


def settings_of(job: dict[str, Any]) -> Any:
    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = job["per_second"]
    settings.server_target_latency_ns = int(job["target_milliseconds"] * 1e6)
    settings.server_target_latency_percentile = job["percentile"]
    settings.min_duration_ms = int(job["seconds"] * 1000)
    settings.max_duration_ms = int(job["seconds"] * 4000)
    settings.min_query_count = 1
    return settings


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    images = [
        {
            "before": base64.b64decode(line["before"]),
            "after": base64.b64decode(line["after"]),
            "logits": line["logits"],
        }
        for line in json.loads(Path(job["payload"]).read_text())
    ]
    work: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
    faults: list[str] = []
    for _ in range(job["connections"]):
        Sender(job, images, work, faults).start()

    def issue(samples: Any) -> None:
        for sample in samples:
            work.put((sample.id, sample.index))

    with tempfile.TemporaryDirectory() as folder:
        output = lg.LogOutputSettings()
        output.outdir = folder
        output.copy_summary_to_stdout = False
        log = lg.LogSettings()
        log.log_output = output
        log.enable_trace = False
        system = lg.ConstructSUT(issue, lambda: None)
        library = lg.ConstructQSL(len(images), len(images), lambda _: None, lambda _: None)
        lg.StartTestWithLogSettings(system, library, settings_of(job), log)
        lg.DestroyQSL(library)
        lg.DestroySUT(system)
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    fields = {}
    for line in summary.splitlines():
        name, _, value = line.partition(":")
        if value:
            fields[name.strip()] = value.strip()
    answer = {"summary": fields, "faults": len(faults), "first_fault": (faults or [""])[0]}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
