"""AggEngine: any verified schedule executed on torch.distributed's point-to-point transport (PLink thesis, 4.2.2)."""
