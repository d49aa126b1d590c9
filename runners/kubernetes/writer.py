"""Writer of ``plink manifests``: the Kubernetes objects of a job, to be started by ``kubectl apply``."""

from plink.model.hosts import Hosts
from runners.job.job import Job
from runners.job.runner import DryRun, LaunchCommand, RunContext
from runners.kubernetes.objects import objects
from runners.kubernetes.settings import PodSettings, check_nodes
from runners.kubernetes.text import as_json, as_yaml


class ObjectWriter:
    """See :class:`runners.job.runner.Writer`."""

    name = "kubernetes"

    def __init__(self, settings: PodSettings, json: bool = False) -> None:
        """Write YAML, or with ``json`` one List."""
        self._settings, self._json = settings, json

    def dry_run(self, job: Job, hosts: Hosts, context: RunContext) -> DryRun:
        """Return the objects in one file, and the command that starts them."""
        check_nodes(hosts)
        name = self._settings.named(job.program, context.run_id, hosts)
        documents = objects(name, job, hosts, self._settings, context.run_id)
        file, text = (f"{name}.json", as_json(documents)) if self._json else (f"{name}.yaml", as_yaml(documents))
        return DryRun(self.name, (LaunchCommand(("kubectl", "apply", "-f", file)),), {file: text})
