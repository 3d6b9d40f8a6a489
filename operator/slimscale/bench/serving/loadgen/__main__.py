"""`python -m slimscale.bench.serving.loadgen`: a job a line on stdin, its answer a line on stdout."""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvloop

from slimscale.bench.serving.loadgen.check import Checker, Image, read_payload
from slimscale.bench.serving.loadgen.job import Answered, Job
from slimscale.bench.serving.loadgen.loops import ClosedLoop, OpenLoop


async def run_job(job: Job, images: list[Image]) -> Answered:
    checker = Checker(
        images, path=job.path, host=f"{job.host}:{job.port}", headers=job.headers, seed=job.seed
    )
    loop = ClosedLoop(job, checker) if job.clients else OpenLoop(job, checker)
    return await loop.run()


def _tell(document: dict[str, Any]) -> None:
    """One line, however long: many latencies are more than a pipe holds."""
    os.set_blocking(sys.stdout.fileno(), True)
    left = memoryview(json.dumps(document).encode() + b"\n")
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


def main() -> None:
    payloads: dict[str, list[Image]] = {}
    gc.disable()  # a collection would look like a slow answer; jobs are short and end with one
    for line in sys.stdin:
        job = Job(**json.loads(line))
        if job.payload not in payloads:
            payloads[job.payload] = read_payload(Path(job.payload))
        try:
            answered = uvloop.run(run_job(job, payloads[job.payload]))
        except OSError as error:
            _tell({"error": str(error)})
            continue
        _tell(answered.to_json())
        gc.collect()


if __name__ == "__main__":
    main()
