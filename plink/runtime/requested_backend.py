"""What a script said to torch before its words came to mean plink."""

# Whether all-reduces of tensors on GPUs are to go by schedules too, through the hosts' memory. It has to be set on
# every rank, for it says what a script's "nccl" means there.
STAGED = "PLINK_STAGED"
# Whether a script said "gloo" of the group that is made, and has plink in its place: then Gloo serves tensors on GPUs
# too, as it would have.
gloo_requested = False
