"""What the script requested of torch.distributed before plink replaced the backend's name."""

# Whether all-reduces of tensors on GPUs use schedules too, staged through host memory. It must be set on every rank:
# it changes what a script's "nccl" means there.
STAGED = "PLINK_STAGED"
# Whether the script requested "gloo" for the group that is created, and gets plink instead: then Gloo serves tensors on
# GPUs, too, as it would have.
gloo_requested = False
