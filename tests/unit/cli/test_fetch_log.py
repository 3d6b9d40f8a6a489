"""Fetching the decisions of routers: all segments of each, by kubectl's port-forward, faults by name."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from slimscale.act.policy_manifest import policy_config_map
from slimscale.cli.fetch_log import fetch_log, fetch_router
from slimscale.exceptions import SlimError
from slimscale.serving.router.policy_file import read_folder


class Router(BaseHTTPRequestHandler):
    segments: dict[int, bytes] = {0: b"first", 3: b"open"}  # noqa: RUF012 - a fake's state

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = parse_qs(url.query).get("segment")
        body = b'{"error": "no decisions are kept; set routing.decisionLog.samplePercent"}'
        if self.segments:
            index = [{"segment": number, "decisions": 2} for number in self.segments]
            body = json.dumps({"segments": index}).encode()
            if asked:
                body = self.segments[int(asked[0])]
        self.send_response(200 if self.segments else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Router)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_segment_of_a_router_is_written(address: str, tmp_path: Path) -> None:
    @contextmanager
    def forward(pod: str) -> Iterator[str]:
        yield f"http://{address}"

    assert fetch_router("r-1", forward, tmp_path) == 4
    assert (tmp_path / "r-1-0.safetensors").read_bytes() == b"first"
    assert (tmp_path / "r-1-3.safetensors").read_bytes() == b"open"


def fake_kubectl(folder: Path, *, pods: str, forwards_to: str = "") -> None:
    script = folder / "kubectl"
    script.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *"get pods"*) printf "{pods}";;\n'
        f'*port-forward*) echo "Forwarding from {forwards_to} -> 8081"; exec cat;;\n'
        "esac\n",
        encoding="utf-8",
    )
    script.chmod(0o755)


def test_kubectl_is_asked_for_the_routers_and_forwards_their_ports(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_kubectl(tmp_path, pods="r-1\\nr-2\\n", forwards_to=address)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    out = tmp_path / "log"
    assert fetch_log(name="fashion", namespace="shop", context="", out=out) == 8
    assert len(list(out.iterdir())) == 4


@pytest.mark.parametrize(
    ("pods", "says"), [("", "no running router here"), ("r-1\\n", "samplePercent")]
)
def test_what_is_wrong_is_said_with_the_remedy(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: str, says: str
) -> None:
    monkeypatch.setattr(Router, "segments", {})
    fake_kubectl(tmp_path, pods=pods, forwards_to=address)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SlimError, match=says):
        fetch_log(name="fashion", namespace="", context="", out=tmp_path / "log")


def test_without_kubectl_the_message_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlimError, match="kubectl is not on the path"):
        fetch_log(name="fashion", namespace="", context="", out=tmp_path / "log")


def test_a_manifest_holds_what_routers_read(tmp_path: Path) -> None:
    from base64 import b64decode

    manifest = policy_config_map("tuned", data=b"weights", card={"version": "2"}, namespace="shop")
    for key, text in manifest["data"].items():
        (tmp_path / key).write_text(text, encoding="utf-8")
    for key, text in manifest["binaryData"].items():
        (tmp_path / key).write_bytes(b64decode(text))
    data, card = read_folder(tmp_path)
    assert (data, card["version"]) == (b"weights", "2")
    with pytest.raises(SlimError, match="train a smaller network"):
        policy_config_map("tuned", data=bytes(1_000_000), card={})
