"""A stand-in for SkyPilot's module: the calls that plink uses, with SkyPilot's own parameters (0.14)."""

import enum
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class ClusterStatus(enum.Enum):
    INIT = "INIT"
    UP = "UP"
    STOPPED = "STOPPED"


class StatusRefreshMode(enum.Enum):
    NONE = "NONE"
    AUTO = "AUTO"
    FORCE = "FORCE"


class AutostopWaitFor(enum.Enum):
    JOBS_AND_SSH = "jobs_and_ssh"
    JOBS = "jobs"
    NONE = "none"


class ClusterDoesNotExist(ValueError):
    pass


class ResourcesUnavailableError(Exception):
    pass


class NoCloudAccessError(RuntimeError):
    pass


class Resources:
    """``prices``: of an hour, by infra, type and whether it is spot; set by the stand-in that makes it."""

    prices: dict[tuple[str, str, bool], float]

    def __init__(
        self, cloud: Any = None, instance_type: str | None = None, *, infra: str | None = None,
        use_spot: bool | None = None, region: str | None = None, zone: str | None = None, image_id: str | None = None,
    ) -> None:  # fmt: skip
        if not any(key[:2] == (infra, instance_type) for key in self.prices):
            raise ValueError(f"Invalid instance type {instance_type!r} for {infra}")
        self.infra, self.instance_type, self.use_spot, self.image_id = infra, instance_type, bool(use_spot), image_id

    def get_cost(self, seconds: float) -> float:
        return self.prices[str(self.infra), str(self.instance_type), self.use_spot] * seconds / 3600


class Task:
    def __init__(self, name: str | None = None, *, setup: str | None = None, run: str | None = None,
                 num_nodes: int | None = None) -> None:  # fmt: skip
        self.name, self.setup, self.resources = name, setup, None

    def set_resources(self, resources: Any) -> None:
        self.resources = resources


@dataclass
class FakeSky:
    """``clusters``: by name, as SkyPilot's status prints them; ``launched``: names, in order; ``fails``: raised by the
    next requests of a method, where they are submitted (``at_submit``) or answered."""

    clock: Callable[[], float]
    prices: dict[tuple[str, str, bool], float]
    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)
    launched: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    fails: dict[str, list[Exception]] = field(default_factory=dict)
    at_submit: bool = False
    user: dict[str, str] | None = None
    has_ssh_sessions: bool = False
    is_queueing: bool = False
    queue: list[Any] = field(default_factory=list)  # launches

    def module(self) -> types.ModuleType:
        """Return the module ``sky``."""
        module = types.ModuleType("sky")
        module.Resources = type("Resources", (Resources,), {"prices": self.prices})  # type: ignore[attr-defined]
        module.Task, module.StatusRefreshMode = Task, StatusRefreshMode  # type: ignore[attr-defined]
        module.skylet = types.SimpleNamespace(  # type: ignore[attr-defined]
            autostop_lib=types.SimpleNamespace(AutostopWaitFor=AutostopWaitFor)
        )
        for name in ("launch", "down", "status", "autostop", "get", "api_info", "api_cancel"):
            setattr(module, name, getattr(self, name))
        return module

    def _request(self, method: str, act: Callable[[], Any]) -> Callable[[], Any]:
        """A request id, here a function that gives the result."""
        error = self.fails[method].pop(0) if self.fails.get(method) else None
        if error is not None and self.at_submit:
            raise error

        def answer() -> Any:
            if error is not None:
                raise error
            return result

        result = act() if error is None else None
        return answer

    def get(self, request_id: Callable[[], Any]) -> Any:
        return request_id()

    def launch(
        self, task: Task, cluster_name: str | None = None, retry_until_up: bool = False,
        idle_minutes_to_autostop: int | None = None, wait_for: AutostopWaitFor | None = None, dryrun: bool = False,
        down: bool = False,
    ) -> Any:  # fmt: skip
        assert cluster_name is not None
        name = cluster_name

        def act() -> None:
            self.launched.append(name)
            self.tasks.append(task)
            self.clusters[name] = {
                "name": name, "launched_at": int(self.clock()), "status": ClusterStatus.INIT, "handle": None,
                "autostop": idle_minutes_to_autostop, "to_down": down, "wait_for": wait_for, "active_at": self.clock(),
            }  # fmt: skip

        if self.is_queueing:
            self.queue.append(act)
            return act
        return self._request("launch", act)

    def api_cancel(self, request_ids: list[Any], all_users: bool = False, silent: bool = False) -> Any:
        def act() -> None:
            self.queue = [each for each in self.queue if each not in request_ids]

        return self._request("api_cancel", act)

    def status(
        self, cluster_names: list[str] | None = None, refresh: StatusRefreshMode = StatusRefreshMode.NONE,
        all_users: bool = False,
    ) -> Any:  # fmt: skip
        self.end_idle()
        rows = [dict(row) for name, row in self.clusters.items() if cluster_names is None or name in cluster_names]
        return self._request("status", lambda: rows)

    def down(self, cluster_name: str, purge: bool = False) -> Any:
        def act() -> None:
            del self.clusters[cluster_name]

        if cluster_name not in self.clusters:
            self.fails.setdefault("down", []).insert(0, ClusterDoesNotExist(cluster_name))
        return self._request("down", act)

    def autostop(self, cluster_name: str, idle_minutes: int, wait_for: Any = None, down: bool = False) -> Any:
        def act() -> None:
            self.clusters[cluster_name] |= {
                "autostop": idle_minutes, "to_down": down, "wait_for": wait_for, "active_at": self.clock(),
            }  # fmt: skip

        return self._request("autostop", act)

    def api_info(self) -> dict[str, Any]:
        return {"status": "healthy", "user": self.user}

    def end_idle(self) -> None:
        """Tear down what is idle for the minutes of its last setting, which count from that setting."""
        for name, row in [*self.clusters.items()]:
            if self.has_ssh_sessions and row.get("wait_for") in (None, AutostopWaitFor.JOBS_AND_SSH):
                row["active_at"] = self.clock()
            elif row.get("to_down") and (self.clock() - row["active_at"]) // 60 >= row["autostop"]:
                del self.clusters[name]

    def come_up(self) -> None:
        """All clusters are up, with addresses."""
        for number, row in enumerate(self.clusters.values()):
            row["status"] = ClusterStatus.UP
            row["handle"] = types.SimpleNamespace(head_ip=f"10.0.0.{number + 1}")
