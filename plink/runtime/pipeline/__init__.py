"""Pipelines on real hosts: one rank runs one stage of a plan (PipeDream, Harlap thesis, chapter 5).

``executor.py`` runs a rank's actions, ``one_process.py`` a whole pipeline in one process. What a user's program imports
is in :mod:`plink.runtime.pipeline.app`.
"""

# What `plink launch --pipeline` tells ranks: see ``__main__.py``.
MODULE = "plink.runtime.pipeline"
VARIABLE = "PLINK_PIPELINE"
REPORTS_VARIABLE = "PLINK_PIPELINE_REPORTS"
TIMEOUT_VARIABLE = "PLINK_PIPELINE_TIMEOUT_S"
CHECKPOINT_VARIABLE = "PLINK_PIPELINE_CHECKPOINT"
EVERY_VARIABLE = "PLINK_PIPELINE_CHECKPOINT_EVERY"
RESTORE_VARIABLE = "PLINK_PIPELINE_RESTORE"
