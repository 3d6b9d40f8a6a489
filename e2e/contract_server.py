"""A pod that speaks the metrics contract and can be told to misbehave. Standard library alone.

It runs as a script out of a ConfigMap. What it serves follows from a small model of a thread pool,
so that figures are exact and no CPU is used: `k` threads, each task with a computing part and a
blocking part, a dispatcher that hands over one task at a time, and the CPU of the container's
cgroup. Two annotations of the pod steer it:

- load: `light`, `heavy` or `blocking`;
- fault: `ok`, `nan`, `frozen` (yesterday's page for ever), `silent` (accepts, never answers),
  `garbage`, or `deaf` (serves good metrics, but never takes over a new thread count).
"""

import http.server
import os
import threading
import time
from pathlib import Path

PORT = 9464
FOLDER = Path("/etc/slimscale")
STEERING = Path("/etc/steering")
QUOTAS = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

#: (computing, blocking, dispatching) seconds a task
LOADS = {
    "light": (0.0001, 0.0, 0.0005),
    "heavy": (0.020, 0.0, 0.0002),
    "blocking": (0.002, 0.030, 0.0002),
}


def text_of(path: Path) -> str:
    try:
        return path.read_text().strip().strip('"')
    except OSError:
        return ""


def quota_cores() -> float:
    """Of this container; 2 where there is none."""
    for name in QUOTAS:
        words = text_of(Path(name)).split()
        if words and words[0].isdigit():
            period = float(words[1]) if len(words) > 1 else 100_000.0
            return float(words[0]) / period
    return 2.0


class Pool:
    """Counters of a pool that always has work waiting; brought up to date at each look."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started = time.time()
        self.updated = self.started
        # What SlimScale sets (spec.threads.env) wins over the guess in the template.
        self.threads = int(os.environ.get("POOL_THREADS") or os.environ.get("SIM_THREADS", "8"))
        self.tasks = self.cpu = self.usage = self.waited = 0.0
        self.task_sum = self.dispatch_sum = 0.0
        self.task_counts = dict.fromkeys(BOUNDS, 0.0)
        self.dispatch_counts = dict.fromkeys(BOUNDS, 0.0)

    def advance(self, load: str, *, deaf: bool) -> None:
        computing, blocking, dispatching = LOADS.get(load, LOADS["heavy"])
        now = time.time()
        cores = quota_cores()
        alone = computing + blocking
        able = cores / (computing + dispatching)
        rate = min(self.threads / (alone + dispatching), able, 1 / dispatching)
        done = rate * (now - self.updated)
        # Where the CPU is what bounds it, threads wait for it inside their tasks.
        wall = max(alone, self.threads / rate - dispatching) if rate == able else alone
        self.updated = now
        self.tasks += done
        self.cpu += done * computing
        self.usage += done * (computing + dispatching)
        self.waited += done * (wall - alone)
        self.task_sum += done * wall
        self.dispatch_sum += done * dispatching
        for bound in BOUNDS:
            self.task_counts[bound] += done if wall <= bound else 0.0
            self.dispatch_counts[bound] += done if dispatching <= bound else 0.0
        wanted = text_of(FOLDER / "threads")
        if wanted.isdigit() and int(wanted) > 0 and not deaf:
            self.threads = int(wanted)

    def page(self) -> str:
        lines = [
            f"slimscale_threads_applied {self.threads}",
            f"slimscale_tasks_total {self.tasks}",
            f"slimscale_tasks_outstanding {self.threads + 4}",
            f"slimscale_task_cpu_seconds_total {self.cpu}",
            f"slimscale_cpu_quota_cores {quota_cores()}",
            f"slimscale_task_runqueue_seconds_total {self.waited}",
            f"slimscale_cpu_usage_seconds_total {self.usage}",
            f"slimscale_process_start_time_seconds {self.started}",
        ]
        for name, counts, total in (
            ("task", self.task_counts, self.task_sum),
            ("dispatch", self.dispatch_counts, self.dispatch_sum),
        ):
            stem = f"slimscale_{name}_seconds"
            lines += [f'{stem}_bucket{{le="{bound}"}} {n}' for bound, n in counts.items()]
            lines.append(f'{stem}_bucket{{le="+Inf"}} {self.tasks}')
            lines += [f"{stem}_sum {total}", f"{stem}_count {self.tasks}"]
        return "\n".join(lines) + "\n"


class Answer(http.server.BaseHTTPRequestHandler):
    pool = Pool()
    last = ""

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self.reply("ok\n")
            return
        fault = text_of(STEERING / "fault") or "ok"
        if fault == "silent":
            time.sleep(30)
            return
        with self.pool.lock:
            if fault != "frozen" or not type(self).last:
                self.pool.advance(text_of(STEERING / "load"), deaf=fault == "deaf")
                type(self).last = self.pool.page()
        page = type(self).last
        if fault == "nan":
            page = page.replace(
                f"slimscale_tasks_total {self.pool.tasks}", "slimscale_tasks_total NaN"
            )
        if fault == "garbage":
            page = 'slimscale_task_seconds_bucket{le="0.1 7\n<html>not metrics</html>\n'
        self.reply(page)

    def reply(self, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Kept quiet: a scrape each two seconds says nothing."""


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("", PORT), Answer).serve_forever()
