"""The alert rules and the dashboard of examples/monitoring name metrics that servers export."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/monitoring"
NAME = re.compile(r"\blogdb_\w+")


def exported() -> set[str]:
    """The names under which Prometheus sees the metrics that the code constructs."""
    found = set()
    for path in (ROOT / "logdb").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            name, kind = node.args[0], node.func.id
            if not (isinstance(name, ast.Constant) and str(name.value).startswith("logdb_")):
                continue
            if kind == "HistogramMetricFamily":
                found |= {f"{name.value}_{part}" for part in ("bucket", "sum", "count")}
            elif kind == "CounterMetricFamily" or any(one.arg == "is_counter" for one in node.keywords):
                found.add(f"{name.value}_total")
            else:
                found.add(str(name.value))
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def unknown(expressions: list[str]) -> list[str]:
    known = exported()
    return [name for text in expressions for name in NAME.findall(text) if name not in known]


def test_alert_rules_name_metrics_that_exist() -> None:
    assert len(exported()) > 30
    assert unknown([rule["expr"] for rule in rules()]) == []
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "action"}
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_the_dashboard_names_metrics_that_exist() -> None:
    board = json.loads((FOLDER / "dashboard.json").read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    assert unknown([target["expr"] for target in targets]) == []
    assert unknown([variable["query"] for variable in board["templating"]["list"]]) == []
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("name", ["logdb_gone", "logdb_commits", "logdb_leader_total", "logdb_sync_seconds"])
def test_a_name_that_no_server_exports_is_seen(name: str) -> None:
    assert unknown([f"rate({name}[5m]) > 1"]) == [name]
