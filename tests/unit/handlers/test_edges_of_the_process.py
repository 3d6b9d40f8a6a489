"""Settings, logging, login and the filter of events: what stands between the process and the rest."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import kopf
import pytest
from kubernetes.aio.client import Configuration
from pydantic import ValidationError

from slimscale.controllers.json_log import JsonFormatter, set_up_logging
from slimscale.handlers import startup
from slimscale.handlers.main import run
from slimscale.handlers.resources import WakeFilter, register
from slimscale.kubeapi.ports import Json
from slimscale.settings import OperatorSettings
from tests.support.raw_objects import simworkload


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("slimscale", "kopf")}
    yield
    root.handlers[:], root.level = handlers, level
    for name, old in levels.items():
        logging.getLogger(name).setLevel(old)


def _logged(level: str = "INFO") -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(level, stream)
    return stream


@pytest.mark.usefixtures("logging_restored")
def test_each_record_is_one_line_of_json_with_its_fields() -> None:
    stream = _logged()
    logging.getLogger("slimscale.x").info("two\nlines", extra={"object": "ns/a", "n": 3})
    [line] = stream.getvalue().splitlines()
    record = json.loads(line)
    assert record["message"] == "two\nlines"
    assert (record["level"], record["object"], record["n"]) == ("info", "ns/a", 3)


@pytest.mark.usefixtures("logging_restored")
def test_an_exception_is_part_of_its_line() -> None:
    stream = _logged()
    error = RuntimeError("why")
    logging.getLogger("slimscale.x").error("failed", exc_info=error)
    [line] = stream.getvalue().splitlines()
    assert "RuntimeError: why" in json.loads(line)["exception"]


@pytest.mark.usefixtures("logging_restored")
def test_libraries_stay_silent_even_at_our_debug_level() -> None:
    """H7: at DEBUG they print what they send: headers, bodies, environments."""
    stream = _logged("DEBUG")
    for name in ("kopf.objects", "kubernetes.aio", "urllib3", "aiohttp.client"):
        logging.getLogger(name).info("Authorization: Bearer S3CR3T")
    logging.getLogger("slimscale.x").debug("ours")
    assert "S3CR3T" not in stream.getvalue()
    assert "ours" in stream.getvalue()


def test_what_json_cannot_hold_does_not_break_the_log() -> None:
    record = logging.makeLogRecord({"msg": "m", "levelname": "INFO", "thing": object()})
    assert json.loads(JsonFormatter().format(record))["message"] == "m"


def test_settings_come_from_the_environment_with_our_prefix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLIMSCALE_NAMESPACES", "a, b,")
    monkeypatch.setenv("SLIMSCALE_RESYNC_SECONDS", "30")
    monkeypatch.setenv("SLIMSCALE_PROMETHEUS_URL", "http://p:9090")
    settings = OperatorSettings()
    assert settings.namespaces == ("a", "b")
    assert settings.resync_seconds == 30
    monkeypatch.setenv("SLIMSCALE_NAMESPACES", "")
    assert OperatorSettings().namespaces == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [("WORKERS", "0"), ("LOG_LEVEL", "loud"), ("HEALTH_PORT", "8080"), ("RESYNC_SECONDS", "x")],
)
def test_a_setting_that_makes_no_sense_is_refused_at_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"SLIMSCALE_{name}", value)
    with pytest.raises(ValidationError):
        OperatorSettings()


def test_each_process_has_an_identity_of_its_own() -> None:
    settings = OperatorSettings(pod_name="operator-0")
    assert settings.identity() != settings.identity()
    assert settings.identity().startswith("operator-0_")


@pytest.mark.usefixtures("logging_restored")
def test_an_operator_that_cannot_start_says_why_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    monkeypatch.setenv("SLIMSCALE_KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert "no access to a cluster" in json.loads(line)["error"]


def test_kopf_neither_peers_nor_scans_nor_posts_and_its_watches_end() -> None:
    settings = startup.kopf_settings()
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    watching = settings.watching
    assert watching.server_timeout is not None
    assert watching.client_timeout is not None
    assert watching.server_timeout < watching.client_timeout
    assert watching.connect_timeout is not None
    assert watching.inactivity_timeout <= 75
    assert settings.persistence.finalizer.startswith("slimscale.dev/")


def test_no_handler_of_ours_makes_kopf_write_on_users_objects() -> None:
    """A3: neither state nor finalizers."""
    registry = kopf.OperatorRegistry()
    register(registry, lambda *_: None)
    startup.register(registry, Configuration(host="http://127.0.0.1:1"))
    assert registry._watching.get_all_handlers()
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert not registry._webhooks.get_all_handlers()


def _thing(**metadata: Any) -> Json:
    thing = simworkload()
    thing["metadata"].update(uid="u", generation=1, resourceVersion="5", annotations={})
    thing["metadata"].update(metadata)
    return thing


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2},
        {"annotations": {"a": "b"}},
        {"deletionTimestamp": "2026-11-30T00:00:00Z"},
        {"uid": "another"},
    ],
)
def test_what_users_do_to_an_object_wakes_it(change: Json) -> None:
    wakes = WakeFilter()
    assert wakes.matters(_thing(), deleted=False)
    assert wakes.matters(_thing(**change), deleted=False)


def test_our_own_status_does_not_wake_it_and_its_end_does() -> None:
    wakes = WakeFilter()
    assert wakes.matters(_thing(), deleted=False)
    assert not wakes.matters({**_thing(resourceVersion="6"), "status": {"x": 0.1}}, deleted=False)
    assert wakes.matters(_thing(), deleted=True)
    assert wakes.matters(_thing(), deleted=False), "made anew"
