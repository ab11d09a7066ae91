"""The dashboard and the alerts name what a server tells, and each alert has its section."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import sbp_native as sbp
from sbp_native.metrics import ClientCollector

OPERATE = Path(__file__).resolve().parents[2] / "docs" / "operate"
#: What Prometheus adds to the name of a family.
PARTS = re.compile(r"_(total|bucket|sum|count|info)$")
NAME = re.compile(r"\bsbp_[a-z_]+")


def scrape(address: str | None) -> set[str]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    assert text.endswith("# EOF\n")
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The metrics of a server with both roles, and of a range server."""
    with sbp.Server(durability="none", http="127.0.0.1:0", metrics_per_stream=True) as server:
        with sbp.connect(server.address) as client:
            client.create_stream("orders")
        command = [str(Path(sys.executable).with_name("sbp")), "serve", "--log", "error", "--listen", "127.0.0.1:0"]
        command += ["--http", "127.0.0.1:0", "--data-dir", str(tmp_path_factory.mktemp("rs"))]
        command += ["--role", "range-server", "--placement-driver", server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            address = process.stdout.readline().split("//")[1].rstrip("/\n")
            found = scrape(server.http_address) | scrape(address)
            process.terminate()
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((OPERATE / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """What is asked of Prometheus, by where."""
    asked = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in json.loads((OPERATE / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            asked[f"{panel['title']} {target['refId']}"] = target["expr"]
    return asked


def test_what_is_asked_for_is_told(families: set[str]) -> None:
    asked = expressions()
    assert len(asked) > 30
    for where, expression in asked.items():
        names = [name for name in NAME.findall(expression) if name != "sbp_"]
        assert names or "up{" in expression, where
        for name in names:
            assert PARTS.sub("", name) in families, f"{where} asks for {name}"


def test_the_page_names_every_metric_and_no_other(families: set[str], server: sbp.Server) -> None:
    named = set(NAME.findall((OPERATE / "watching.md").read_text())) - {"sbp_native"}
    of_clients = {name for name in named if name.startswith("sbp_client_")}
    assert {PARTS.sub("", name) for name in named - of_clients} == families
    with sbp.connect(server.address) as client:
        told = {family.name for family in ClientCollector(client).collect()}
    assert {PARTS.sub("", name) for name in of_clients} == told


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    sections = re.findall(r"^## (\S+)$", (OPERATE / "alerts.md").read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]


def buckets(name: str, *, slow: bool) -> dict[str, str]:
    """A histogram for an hour: of a hundred things a minute all, or none, take between five and ten seconds."""
    fast = "0+0x60" if slow else "0+100x60"
    return {
        f'{name}_bucket{{instance="a",le="0.005"}}': fast,
        f'{name}_bucket{{instance="a",le="5.0"}}': fast,
        f'{name}_bucket{{instance="a",le="10.0"}}': "0+100x60",
        f'{name}_bucket{{instance="a",le="+Inf"}}': "0+100x60",
    }


#: An hour of a server with which everything is well, by minutes.
SOUND = {
    'up{job="sbp",instance="a"}': "1x60",
    'sbp_failed{instance="a"}': "0x60",
    'sbp_ready{instance="a"}': "1x60",
    'sbp_draining{instance="a"}': "0x60",
    'sbp_disk_wait_seconds{instance="a"}': "0x60",
    'sbp_disk_full{instance="a"}': "0x60",
    'sbp_disk_nearly_full{instance="a"}': "0x60",
    'sbp_disk_free_bytes{instance="a"}': "50x60",
    'sbp_disk_size_bytes{instance="a"}': "100x60",
    'sbp_damaged_ranges{instance="a"}': "0x60",
    'sbp_range_servers{instance="a",state="down"}': "0x60",
    'sbp_range_servers{instance="a",state="up"}': "3x60",
    'sbp_replicas_missing{instance="a"}': "0x60",
    'sbp_placement_driver_connected{instance="a"}': "1x60",
    'sbp_refusals_total{instance="a",code="1404"}': "0+5x60",
    'sbp_refusals_total{instance="a",code="1429"}': "7x60",
    **buckets("sbp_sync_seconds", slow=False),
    **buckets("sbp_append_seconds", slow=False),
    **buckets("sbp_loop_lag_seconds", slow=False),
}
#: What is otherwise when an alert fires.
TROUBLES = {
    "SbpUnreachable": {'up{job="sbp",instance="a"}': "0x60"},
    "SbpFailed": {'sbp_failed{instance="a"}': "1x60"},
    "SbpNotReady": {'sbp_ready{instance="a"}': "0x60"},
    "SbpDiskHangs": {'sbp_disk_wait_seconds{instance="a"}': "0+60x60"},
    "SbpDiskFull": {'sbp_disk_nearly_full{instance="a"}': "1x60"},
    "SbpDiskFillsUp": {'sbp_disk_free_bytes{instance="a"}': "9x60"},
    "SbpDamagedRecords": {'sbp_damaged_ranges{instance="a"}': "1x60"},
    "SbpRangeServerDown": {'sbp_range_servers{instance="a",state="down"}': "1x60"},
    "SbpReplicasMissing": {'sbp_replicas_missing{instance="a"}': "4x60"},
    "SbpPlacementDriverLost": {'sbp_placement_driver_connected{instance="a"}': "0x60"},
    "SbpSlowSyncs": buckets("sbp_sync_seconds", slow=True),
    "SbpSlowAppends": buckets("sbp_append_seconds", slow=True),
    "SbpLoopLag": buckets("sbp_loop_lag_seconds", slow=True),
    "SbpOverloaded": {'sbp_refusals_total{instance="a",code="1429"}': "0+5x60"},
}


def test_prometheus_takes_the_rules_and_each_fires_when_it_has_to(tmp_path: Path) -> None:
    """By Prometheus's own command. Each trouble makes its alert fire, and no other."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs the promtool of Debian's prometheus; .ci/run installs it")

    def run(*arguments: str | Path) -> str:
        done = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert f"{len(rules())} rules found" in run("check", "rules", OPERATE / "alerts.yaml")
    assert list(TROUBLES) == [rule["alert"] for rule in rules()]
    always = "ALERTS{alertstate='firing'}"

    def case(firing: list[str], otherwise: dict[str, str]) -> dict[str, Any]:
        series = [{"series": name, "values": values} for name, values in {**SOUND, **otherwise}.items()]
        severity = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
        told = [{"labels": f'{{alertname="{alert}", severity="{severity[alert]}"}}', "value": 1} for alert in firing]
        found = {"expr": f"count by (alertname, severity) ({always})", "eval_time": "50m", "exp_samples": told}
        return {"interval": "1m", "input_series": series, "promql_expr_test": [found]}

    cases = [case([], {}), *(case([alert], trouble) for alert, trouble in TROUBLES.items())]
    file = tmp_path / "cases.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(OPERATE / "alerts.yaml")], "tests": cases}))
    assert "SUCCESS" in run("test", "rules", file)


def test_the_commands_of_the_page_on_backups_do_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (OPERATE / "backup.md").read_text(), re.DOTALL)
    commands = [
        line.replace("/backups", f"{tmp_path}/backups").split() for block in blocks for line in block.splitlines()
    ]
    assert {command[1] for command in commands} == {"backup", "restore", "serve", "verify"}
    sbp_command = str(Path(sys.executable).with_name("sbp"))
    expected = [b"first", b"second"]
    server = sbp.Server(tmp_path / "data")
    with sbp.connect(server.address) as client:
        orders = client.create_stream("orders")
        for value in expected:
            orders.append(value)
    for _, what, *arguments in commands:
        if what == "verify":
            # It is for directories that no server uses.
            server.close()
        if what != "serve":
            done = subprocess.run(
                [sbp_command, what, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, (what, done.stderr)
            continue
        command = [sbp_command, "serve", "--log", "error", "--listen", "127.0.0.1:0", *arguments]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            with sbp.connect(address) as client:
                read = client.stream("orders").read()
                assert [record.value for batch in read for record in batch.records()] == expected
            process.terminate()
    server.close()
