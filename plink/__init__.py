"""Measure the network between machines, decide which machine takes which rank, and launch the job that way.

::

    import plink

    hosts = plink.read_hosts("hosts.txt")
    network = plink.probe(hosts)
    order = plink.reorder(network, algo="ring")
    run = plink.launch(plink.Job("train.py"), hosts, order)

Names are imported when they are first used, so that ``import plink`` costs next to nothing. Nothing is printed and no
file is written unless asked for; notes go to the loggers ``plink.probe``, ``plink.reorder`` and so on.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "plink.features.measure.request": ("ProbeRequest",),
    "plink.features.measure.run": ("probe",),
    "plink.errors": ("HostError", "InputError", "NoAnswer", "PartlyDone", "PlinkError", "UsageError"),
    "plink.features.advise.balance": ("Balance", "balance"),
    "plink.features.advise.request": ("AdviseRequest", "BalanceRequest"),
    "plink.features.advise.run": ("Advice", "advise"),
    "plink.features.advise.tuner": ("TunerRow", "tuner_rows"),
    "plink.features.analyse.request": ("ClusterRequest", "EmbedRequest"),
    "plink.features.analyse.run": ("cluster", "embed"),
    "plink.features.check.request": ("CheckRequest",),
    "plink.features.check.run": ("check",),
    "plink.features.cost.request": ("CostRequest",),
    "plink.features.cost.run": ("cost",),
    "plink.features.diagnose.request": ("DoctorRequest",),
    "plink.features.diagnose.run": ("diagnose", "examine"),
    "plink.features.elastic.request": ("ElasticRequest",),
    "plink.features.elastic.run": ("ElasticObserver", "run_elastic"),
    "plink.features.launch.run": ("LaunchRequest", "RecordRequest", "dry_run", "launch"),
    "plink.features.order.request": ("OrderRequest",),
    "plink.features.order.run": ("reorder",),
    "plink.features.pipeline.assess": ("assess_pipeline",),
    "plink.features.pipeline.plan": ("plan_pipeline", "simulate_pipeline", "verify_pipeline"),
    "plink.features.pipeline.request": (
        "PipelineProfileRequest",
        "PipelineRequest",
        "PipelineSimulationRequest",
        "PipelineTrainingRequest",
    ),
    "plink.features.pipeline.train": ("profile_pipeline", "train_pipeline"),
    "plink.features.plan.request": ("PlanRequest",),
    "plink.features.plan.run": ("plan",),
    "plink.features.report.request": ("ReportRequest",),
    "plink.features.report.run": ("render_report",),
    "plink.features.schedule.request": ("ScheduleRequest",),
    "plink.features.schedule.run": ("schedule",),
    "plink.features.spot.drive": ("drive_spot",),
    "plink.features.spot.request": (
        "MadePricesRequest",
        "SpotAdviceRequest",
        "SpotDriveRequest",
        "SpotOddsRequest",
        "SpotSimulationRequest",
    ),
    "plink.features.spot.run": ("advise_spot", "make_spot_prices", "spot_markets", "spot_odds"),
    "plink.features.spot.simulate": ("simulate_spot",),
    "plink.model.check": ("BenchmarkRun", "Check", "read_benchmark_runs"),
    "plink.model.cost": ("CollectiveCost",),
    "plink.model.diagnosis": ("Examination", "Finding", "Severity"),
    "plink.model.dry_run": ("DryRun",),
    "plink.model.elastic.summary": ("ElasticResult",),
    "plink.model.embedding": ("NetworkEmbedding",),
    "plink.model.groups": ("Groups", "read_groups"),
    "plink.model.hosts": ("Host", "Hosts", "parse_hosts", "read_hosts"),
    "plink.model.mesh": ("Mesh", "ModelShape", "make_mesh", "read_mesh"),
    "plink.model.network": ("Network", "read_network"),
    "plink.model.order": ("RankOrder", "read_order"),
    "plink.model.pipeline.plan": ("PipelinePlan", "read_pipeline"),
    "plink.model.pipeline.profile": ("ModelProfile", "read_profile"),
    "plink.model.plan": ("Plan", "read_plan"),
    "plink.model.schedule_file": ("read_schedule",),
    "plink.model.spot.market_file": ("read_market_file",),
    "plink.model.spot.price_files": ("read_spot_histories",),
    "plink.runtime.mesh_groups": ("verify_mesh",),
    "plink.runtime.step_report": ("report_metric",),
    "runners.job.runner": ("Job", "RunObserver"),
    "runners.job.placement": ("PlacementError", "RankLocation", "RunResult"),
    "runners.spot.process": ("release_spot",),
    "runners.spot.status": ("spot_status",),
}

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'plink' has no attribute {name!r}")
    result = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return result


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
