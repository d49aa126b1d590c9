"""Proof at the start: all ranks have the same plan, program and model, or nothing runs."""

import contextlib
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from msgspec import UNSET
from torch import nn
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.errors import PlinkError
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.rank_report import PipelineEvaluation, RankReport, ReportKind
from plink.runtime.pipeline.executor import StageExecutor
from plink.runtime.pipeline.transport import StageTransport

ARGUMENTS = "arguments"
_ERROR = "error"
_LEAVING_S = 10.0  # for which rank 0 waits for ranks that may have read nothing yet


EVERY_S = 10.0
_ACTIONS_PER_LINE = 80


def digest_of_model(model: nn.Module) -> str:
    """Return a digest of the names, shapes and types of a model's parameters and buffers."""
    entries = [
        [name, list(tensor.shape), str(tensor.dtype), tensor.requires_grad]
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
    ]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]


def digest_of_values(module: nn.Module) -> str:
    """Return a digest of the values of a module's parameters and buffers."""
    digest = hashlib.sha256()
    for tensor in [*module.parameters(), *module.buffers()]:
        flat = tensor.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(dtype=torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def read_by_all(store: Store, rank: int, ranks: int) -> Iterator[None]:
    """Leave with an error only once all ranks have one, on rank 0, whose process may have the store that says why.

    Otherwise the connection of a rank that has not read the reason yet would be reset.
    """
    try:
        yield
    except Exception:
        with contextlib.suppress(RuntimeError):  # of the store: others do not end, or have ended without a word
            if store.add("ended", 1) == ranks:
                store.set("all ended", "")
            if rank == 0:
                store.wait(["all ended"], timedelta(seconds=_LEAVING_S))
        raise


def agree(store: Store, rank: int, names: Sequence[str], stages: Sequence[int], facts: Mapping[str, str]) -> list[str]:
    """Publish this rank's facts, wait for those of all others, and compare.

    :param names: of the host of each rank. :param stages: of each rank. :param facts: by what they are of; one whose
        name begins with ``stage`` must be the same among replicas of a stage, all others among all ranks. ``arguments``
        may differ. Or ``error``: why this rank cannot take part.
    :return: what differs that may, for people; the same on every rank.
    :raises PlinkError: naming a rank that differs, or cannot take part; on every rank.
    """
    store.set(f"facts-{rank}", json.dumps(dict(facts)))
    ranks = range(len(names))
    published: list[dict[str, Any]] = [json.loads(store.get(f"facts-{other}")) for other in ranks]
    for other in ranks:
        if _ERROR in published[other]:
            raise PlinkError(f"rank {other} ({names[other]}): {published[other][_ERROR]}")
    notes = []
    for fact in published[0]:
        groups = {stages[other] for other in ranks} if fact.startswith("stage") else {None}
        for group in sorted(groups, key=str):
            members = [other for other in ranks if group is None or stages[other] == group]
            usual, _ = Counter(published[other].get(fact) for other in members).most_common(1)[0]
            differing = [other for other in members if published[other].get(fact) != usual]
            if not differing:
                continue
            like = next(member for member in members if published[member].get(fact) == usual)
            first, second = (f"rank {member} ({names[member]})" for member in (differing[0], like))
            if fact != ARGUMENTS:
                raise PlinkError(f"{first} has another {fact} than {second}; nothing was run")
            more = f" and {len(differing) - 1} more have" if len(differing) > 1 else " has"
            notes.append(f"{first}{more} other {fact} than {second}")
    return notes


class RankReporter:
    """What one rank has done since this was made."""

    def __init__(
        self,
        plan: PipelinePlan,
        rank: int,
        executor: StageExecutor,
        transport: StageTransport | None,
        emit: Callable[[RankReport], None],
        checkpoint: Callable[[], int | None] = lambda: None,
    ) -> None:
        """:param checkpoint: returns the latest that all ranks have; None where none are written."""
        stage, replica = plan.place_of(rank)
        self._rank, self._host, self._stage, self._replica = rank, plan.host_names()[rank], stage, replica
        self._plan, self._replicas = plan.fingerprint(), plan.replicas[stage]
        self._executor, self._transport, self._emit = executor, transport, emit
        self._restored_at = executor.first_minibatch
        self._checkpoint = checkpoint
        self._begin = self._reported = time.perf_counter()

    def begin(self) -> None:
        """Emit where a job goes on, if it does."""
        if self._restored_at:
            self._emit(self._report("progress"))

    def after_action(self) -> None:
        """Emit a report if it is time for one."""
        if time.perf_counter() - self._reported >= EVERY_S:
            self._reported = time.perf_counter()
            self._emit(self._report("progress"))

    def after_checkpoint(self) -> None:
        """Emit a report: a checkpoint was written, or could not be."""
        self._emit(self._report("checkpoint"))

    def after_evaluation(self, trained: int, metrics: Mapping[int, float]) -> None:
        """Emit an evaluation. ``trained``: minibatches before it. ``metrics``: of each evaluation minibatch."""
        evaluation = PipelineEvaluation(trained=trained, metrics=tuple(metrics.items()))
        self._emit(self._report("evaluation", evaluation=evaluation))

    def end(self, losses: Mapping[int, float]) -> None:
        """Emit the times of actions, and the last report. ``losses``: by minibatch, of the last stage."""
        actions = tuple(
            (item.action.kind, item.action.number, round(item.begin_s, 6), round(item.end_s, 6))
            for item in self._executor.times.actions
        )
        for first in range(0, len(actions), _ACTIONS_PER_LINE):
            self._emit(self._report("timeline", actions=actions[first : first + _ACTIONS_PER_LINE]))
        self._emit(self._report("end", loss=losses[max(losses)] if losses else UNSET))

    def _report(self, kind: ReportKind, **more: Any) -> RankReport:
        times = self._executor.times
        interval_s, checkpoint = times.interval_s(), self._checkpoint()
        return RankReport(
            type=kind,
            plan=self._plan,
            rank=self._rank,
            host=self._host,
            stage=self._stage,
            replica=self._replica,
            begin=self._restored_at or UNSET,
            at_s=round(time.perf_counter() - self._begin, 3),
            minibatches=len(times.ends),
            minibatch_s=UNSET if interval_s is None else round(interval_s / self._replicas, 9),
            sent_bytes=0 if self._transport is None else self._transport.sent_bytes,
            received_bytes=0 if self._transport is None else self._transport.received_bytes,
            versions=self._executor.versions,
            checkpoint=UNSET if checkpoint is None else checkpoint,
            **times.seconds(),
            **more,
        )
