"""Autotune's decisions (PLink thesis, 4.2.3): when to look again, and which rank should aggregate what from now on."""
