"""Distributed gradient boosting with LightGBM, its machines in plink's order.

    plink launch --hosts hosts.txt examples/lightgbm_train.py
    plink compare --hosts hosts.txt --pairs 5 --metric iteration_s examples/lightgbm_train.py

LightGBM takes its rank from the place of a machine in its list, so the list is what carries the order: plink gives
every rank the addresses of all ranks, in order, as PLINK_ADDRESSES. The data are made here, each rank its own part of
them. Rank 0 prints one JSON line: the seconds of an iteration, and how well the trees tell unseen rows apart.
"""

import argparse
import json
import os
import socket
import time
from collections import Counter

import lightgbm as lgb
import numpy as np

# Below the ports that systems hand out by themselves. Another port in every run: LightGBM cannot listen on one that was
# in use a minute ago.
PORT = 12000 + int(os.environ.get("MASTER_PORT", "0")) % 16000


def rows(count: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(X, shape (count, features); y, shape (count,), 0 or 1): a few features and products of them decide."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, features)).astype(np.float32)
    score = x[:, 0] + x[:, 1] * x[:, 2] - 0.5 * x[:, 3] ** 2 + generator.normal(scale=0.3, size=count)
    return x, (score > -0.3).astype(np.int8)


def machines(addresses: list[str]) -> tuple[list[str], int]:
    """("address:port" of every rank in order, this rank's port): ranks of one host listen on ports of their own."""
    seen: Counter[str] = Counter()
    ports = []
    for address in addresses:
        ports.append(PORT + seen[address])
        seen[address] += 1
    listed = [f"{address}:{port}" for address, port in zip(addresses, ports, strict=True)]
    return listed, ports[int(os.environ["RANK"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="of each rank")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--leaves", type=int, default=15)
    request = parser.parse_args()
    rank, addresses = int(os.environ["RANK"]), os.environ["PLINK_ADDRESSES"].split(",")
    listed, port = machines([socket.gethostbyname(address) for address in addresses])
    x, y = rows(request.rows, request.features, seed=rank)
    settings = {
        "objective": "binary", "num_leaves": request.leaves, "learning_rate": 0.2, "max_bin": 255, "num_threads": 1,
        "tree_learner": "data", "num_machines": len(listed), "machines": ",".join(listed), "local_listen_port": port,
        "time_out": 5, "verbosity": 1, "pre_partition": True,
    }  # fmt: skip
    times: list[float] = []
    trees = lgb.train(
        settings, lgb.Dataset(x, y), request.iterations, callbacks=[lambda env: times.append(time.perf_counter())]
    )
    if rank == 0:
        unseen, truth = rows(4000, request.features, seed=10_000)
        right = float(np.mean((trees.predict(unseen) > 0.5) == truth))
        steps = np.diff(times)
        print(json.dumps({"iteration_s": round(float(np.median(steps)), 6), "accuracy": round(right, 4)}))


if __name__ == "__main__":
    main()
