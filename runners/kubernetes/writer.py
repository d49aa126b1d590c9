"""``plink manifests``: the objects of a job, for others to start."""

from plink.model.hosts import Hosts
from runners.job.job import Job
from runners.job.runner import Command, DryRun, Watch
from runners.kubernetes.objects import objects
from runners.kubernetes.settings import PodSettings, check_nodes
from runners.kubernetes.text import as_json, as_yaml


class ObjectWriter:
    """See :class:`runners.job.runner.Writer`."""

    name = "kubernetes"

    def __init__(self, settings: PodSettings, json: bool = False) -> None:
        """``json``: as one List, instead of YAML."""
        self._settings, self._json = settings, json

    def dry_run(self, job: Job, hosts: Hosts, watch: Watch) -> DryRun:
        """The objects in one file, and the command that starts them."""
        check_nodes(hosts)
        name = self._settings.named(job.program, watch.run_id, hosts)
        made = objects(name, job, hosts, self._settings, watch.run_id)
        file, text = (f"{name}.json", as_json(made)) if self._json else (f"{name}.yaml", as_yaml(made))
        return DryRun(self.name, (Command(("kubectl", "apply", "-f", file)),), {file: text})
