"""Metrics for Prometheus (D-101): counts by verdict and status, of all workers; nobody's key or domain."""

import os
import re
import time
from importlib.resources import files
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from harness.fetching import fetch
from licserver.runtime.metrics import Meters, MetricsSnapshot
from licserver.services.queues import QueueState
from licserver.serving.server import bind

DASHBOARD = files("licserver") / "deploy_files" / "grafana-dashboard.json"
PAGE = Path(__file__).parents[3] / "docs" / "deploy.md"
ALERTS = files("licserver") / "deploy_files" / "prometheus-alerts.yml"


def text_of(url: str) -> str:
    """Return the body at an address."""
    return fetch(url)[1].decode()


def read(text: str) -> dict[tuple[str, ...], float]:
    """Read what Prometheus would: name and label values, and the value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.slow), "3"])
def test_every_worker_reports_what_all_have_counted(program, workers):
    """Verdicts and statuses are counted whichever worker answers; no label names a key or a domain."""
    (key,) = program.stock()
    with bind("127.0.0.1", 0)[0] as free:
        port = free.getsockname()[1]
    program.environ["LICSERVER_METRICS_LISTEN"] = f"127.0.0.1:{port}"
    with program.serve("--workers", workers) as (_, address):
        call = {"license_key": key, "domain": "counted.example", "ip": "192.0.2.1"}
        for _ in range(20):
            fetch(f"{address}/api/v1/licenses/verify", call)
        fetch(f"{address}/api/v1/licenses/verify", {**call, "domain": "another.example"})
        fetch(f"{address}/api/v1/licenses/verify", {**call, "license_key": "no key"})
        fetch(f"{address}/api/v1/licenses/verify", {})
        fetch(f"{address}/wp-login.php?{key}")
        fetch(f"{address}/feeds/no-product/appcast.xml")
        deadline = time.monotonic() + 30
        while read(text_of(f"http://127.0.0.1:{port}/metrics"))["licserver_workers",] < int(workers):
            assert time.monotonic() < deadline  # the first one answers while others still start
        texts = [text_of(f"http://127.0.0.1:{port}/metrics") for _ in range(5)]
        assert "not_found" in text_of(f"{address}/metrics")  # customers get 404
    assert any(
        read(text)["licserver_database_up",] == 1 for text in texts
    )  # one may be slow on a busy machine
    for text in texts:
        found = read(text)
        assert found["licserver_verifies_total", "valid"] == 20
        assert found["licserver_verifies_total", "environment"] == 1
        assert found["licserver_verifies_total", "format"] == 1
        assert found["licserver_requests_total", "verify", "422"] == 1
        assert found["licserver_requests_total", "other", "404"] == 1
        assert found["licserver_requests_total", "feed", "401"] == 1
        assert found["licserver_request_duration_seconds_count", "verify"] == 23
        assert found["licserver_workers",] == int(workers)
        if found["licserver_database_up",]:
            assert found["licserver_queue_waiting", "sales"] == 0
        assert ".example" not in text
        assert "CP-" not in text


@pytest.mark.slow
@pytest.mark.parametrize("own_address", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_vendors_side_is_counted_as_well(program, own_address):
    """An alarm on faults hears of the admin API and the console, wherever they are; so of a wrong method."""
    with bind("127.0.0.1", 0)[0] as free:
        port = free.getsockname()[1]
    program.environ["LICSERVER_METRICS_LISTEN"] = f"127.0.0.1:{port}"
    if own_address:
        program.environ["LICSERVER_ADMIN_LISTEN"] = "127.0.0.1:0"
    with program.serve() as (process, address):
        admin = process.stdout.readline().removeprefix("admin API on ").strip() if own_address else address
        fetch(f"{admin}/admin/api/v1/products")
        fetch(f"{admin}/console/sign-in")
        fetch(f"{admin}/nowhere")
        fetch(f"{admin}/healthz", {})
        found = read(text_of(f"http://127.0.0.1:{port}/metrics"))
    assert found["licserver_requests_total", "admin", "401"] == 1
    assert found["licserver_requests_total", "console", "200"] == 1
    assert found["licserver_requests_total", "other", "404"] == 1
    assert found["licserver_requests_total", "health", "405"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no processes to fork here")
def test_a_worker_that_dies_takes_no_count_along():
    """What a worker has counted is still reported when it is gone, and its successor goes on in its block."""
    meters = Meters(2)

    def count_in_a_process(by: int) -> tuple[int, int]:
        """Count in a child, and tell which processes live while it does and after."""
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            meters.claim()._cells[0] += by
            os.write(ready[1], b"!")
            os.read(go[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        live = meters.count_live()
        os.write(go[1], b"!")
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)
        return live, meters.count_live()

    assert count_in_a_process(7) == (1, 0)
    assert count_in_a_process(5) == (1, 0)
    assert meters.totals()["verifies", "valid", ""] == 12
    assert meters._cells[0] == 12  # both in one block
    meters.close()


def test_an_address_that_is_taken_is_reported(bare_cli, monkeypatch):
    """A server whose address for metrics is in use does not start and reports the address."""
    with bind("127.0.0.1", 0)[0] as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("LICSERVER_METRICS_LISTEN", f"127.0.0.1:{port}")
        report = bare_cli("serve", "--port", "0", expect=1)
    assert f"cannot listen on 127.0.0.1:{port} for metrics" in report
    assert "Traceback" not in report


def test_the_documentation_has_each_metric():
    """With its labels, in the table of docs/deploy.md."""
    rows = re.findall(r"^\| (`licserver_.*?`) \| (.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    documented = {
        name.removesuffix("_total"): set(re.findall(r"`(\w+)`", labels))
        for names, labels in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    families = [*MetricsSnapshot(Meters(), 1.0, [QueueState("sales", 0.0, 0, 0)], is_ready=True).collect()]
    assert documented.keys() == {family.name for family in families}
    for family in families:
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels <= documented[family.name], family.name


def test_the_dashboard_asks_for_what_there_is():
    """Each metric and label that the Grafana dashboard names exists."""
    names = {"licserver_requests_total", "licserver_verifies_total"}

    labels = {"le", "job", "instance"}
    for family in MetricsSnapshot(Meters(), 1.0, [QueueState("sales", 0.0, 0, 0)], is_ready=True).collect():
        names |= {sample.name for sample in family.samples}
        labels |= {label for sample in family.samples for label in sample.labels}
    labels |= {"endpoint", "status", "verdict"}
    expressions = re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', DASHBOARD.read_text())
    assert len(expressions) >= 6
    alerts = [
        rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]
    assert len(alerts) >= 6
    for metric in ("oldest_due_seconds", "waiting", "dead"):  # of each queue there is a panel and an alert
        for found in (expressions, alerts):
            assert any(f"licserver_queue_{metric}" in expression_ for expression_ in found)
    for found in (expressions, alerts):
        assert any("licserver_sale_problems" in expression_ for expression_ in found)
    for expression in (*expressions, *alerts):
        assert set(re.findall(r"licserver_\w+", expression)) <= names, expression
        for group in re.findall(r"(?:by|without) \(([^)]*)\)", expression):
            assert {label.strip() for label in group.split(",")} <= labels, expression
