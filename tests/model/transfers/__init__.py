"""Tests of transfers of asynchronous updates."""
