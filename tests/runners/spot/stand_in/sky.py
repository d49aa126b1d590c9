"""A stand-in for SkyPilot's module: the calls that examples/spot_skypilot.py uses, with SkyPilot's parameters (0.14).

Its clusters, the launches that wait in its queue, the catalog and the failures to come are in the JSON file
``$FAKE_SKY``, which a test reads and changes between two commands. A request's id is its result.
"""

import enum
import json
import os
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ClusterStatus(enum.Enum):
    INIT = "INIT"
    UP = "UP"
    STOPPED = "STOPPED"


class StatusRefreshMode(enum.Enum):
    AUTO = "AUTO"


class AutostopWaitFor(enum.Enum):
    NONE = "none"


class ClusterDoesNotExist(ValueError):
    pass


skylet = types.SimpleNamespace(autostop_lib=types.SimpleNamespace(AutostopWaitFor=AutostopWaitFor))
_FILE = Path(os.environ["FAKE_SKY"])


def _change(method: str, act: Callable[[dict[str, Any]], Any]) -> Any:
    """Fail as the file says, or change it; SkyPilot prints on the way."""
    print(f"sky {method}")
    state = json.loads(_FILE.read_text())
    failures = state["fails"].get(method, [])
    error = failures.pop(0) if failures else None
    result = act(state) if error is None else None
    _FILE.write_text(json.dumps(state))
    if error is not None:
        raise {"ValueError": ValueError, "ConnectionError": ConnectionError}[error](f"{method} failed")
    return result


class Resources:
    def __init__(self, *, infra: str, instance_type: str, use_spot: bool, image_id: str | None = None) -> None:
        self.infra, self.type, self.is_spot, self.image = infra, instance_type, use_spot, image_id

    def get_cost(self, seconds: float) -> float:
        catalog: dict[str, float] = json.loads(_FILE.read_text())["catalog"]
        return catalog[f"{self.type}@{self.infra}"] * seconds / 3600


class Task:
    def __init__(self, name: str, *, setup: str | None = None) -> None:
        self.name, self.setup = name, setup

    def set_resources(self, resources: Resources) -> None:
        self.resources = resources


def launch(
    task: Task, cluster_name: str, *, idle_minutes_to_autostop: int, wait_for: AutostopWaitFor | None = None,
    down: bool = False,
) -> str:  # fmt: skip
    def act(state: dict[str, Any]) -> str:
        record = {
            "name": cluster_name, "launched_at": int(time.time()), "status": "INIT", "infra": task.resources.infra,
            "is_spot": task.resources.is_spot, "setup": task.setup, "minutes": idle_minutes_to_autostop,
            "unconditional": down and wait_for is AutostopWaitFor.NONE,
        }  # fmt: skip
        state["launched"].append(cluster_name)
        state["queue" if state["is_queueing"] else "clusters"][cluster_name] = record
        return f"launch {cluster_name}"

    result: str = _change("launch", act)
    return result


def status(
    cluster_names: list[str] | None = None, refresh: StatusRefreshMode | None = None
) -> list[dict[str, Any]]:  # fmt: skip
    rows = _change("status", lambda state: [*state["clusters"].values()])
    return [
        {**row, "status": ClusterStatus(row["status"]), "handle": types.SimpleNamespace(head_ip="10.0.0.1")}
        for row in rows
        if cluster_names is None or row["name"] in cluster_names
    ]


def down(cluster_name: str) -> None:
    def act(state: dict[str, Any]) -> None:
        if cluster_name not in state["clusters"]:
            raise ClusterDoesNotExist(cluster_name)
        del state["clusters"][cluster_name]

    _change("down", act)


def autostop(
    cluster_name: str, idle_minutes: int, wait_for: AutostopWaitFor | None = None, down: bool = False
) -> None:  # fmt: skip
    unconditional = down and wait_for is AutostopWaitFor.NONE
    lease = {"minutes": idle_minutes, "unconditional": unconditional}
    _change("autostop", lambda state: state["clusters"][cluster_name].update(lease))


def api_cancel(request_ids: list[str], silent: bool = False) -> None:
    _change("api_cancel", lambda state: [state["queue"].pop(each.split()[1], None) for each in request_ids])


def get(request_id: Any) -> Any:
    return request_id
