"""What `plink check --measure` runs on the hosts: two processes over loopback."""

import json
import resource

from plink.runtime.order_timing import main, pack_config
from tests.runtime.ranks import results_of, run_ranks


def measure_with_few_files(word: str) -> None:
    """Be one rank of the program where a login may open 64 files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    main(word)


def test_many_orders_are_not_kept_from_the_files_they_need() -> None:
    """A login has 1,024 open files as a rule, and each order takes some for every other rank."""
    request = {
        "kind": "gloo",
        "places": [[0, 1], [1, 0]] * 10,
        "sizes_bytes": [400, 4000] * 10,
        "warm_up": 1,
        "repeats": 2,
    }
    first, second = ended = run_ranks(measure_with_few_files, 2, pack_config(request))
    results_of(ended)
    rows = [json.loads(line)["seconds"] for line in first.out.splitlines()]
    assert [len(row) for row in rows] == [20, 20]
    assert min(min(row) for row in rows) > 0
    assert second.out == ""
