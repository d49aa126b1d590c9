"""Transient (spot) machines: what they cost, which to take, and the driver that rents them for a job."""
