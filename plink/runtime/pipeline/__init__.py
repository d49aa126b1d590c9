"""Pipelines on real hosts: one rank runs one stage of a plan (PipeDream, Harlap thesis, chapter 5).

``executor.py`` runs a rank's actions, ``one_process.py`` a whole pipeline in one process. What a user's program imports
is in :mod:`plink.runtime.pipeline.app`.
"""
