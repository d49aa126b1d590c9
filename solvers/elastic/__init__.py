"""Elastic jobs: who serves and who works (``placement``), and the state machine that brings it about."""
