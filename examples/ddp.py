"""Train on two ranks: `python examples/ddp.py target/demo/lift.kino`.

Each rank creates a loader; rank and world size come from `torch.distributed`. Both train on their half of every
global batch, and after each step they have the same weights. No GPU is needed: the ranks communicate through gloo.
"""

import socket
import sys

import torch
import torch.distributed as dist
from small_policy import WINDOWS, make_policy
from torch.nn.parallel import DistributedDataParallel

import kinograph.torch

RANKS = 2
EPOCHS = 2
BATCH = 16


def train(rank: int, ranks: int, port: int, path: str) -> None:
    """Train one rank; rank 0 prints the losses."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    policy = DistributedDataParallel(make_policy())
    adam = torch.optim.Adam(policy.parameters())
    # `global_batch_size` is that of all ranks together; `batch_size` would be that of one rank.
    with kinograph.torch.Loader(
        path,
        windows=WINDOWS,
        anchor="actions",
        global_batch_size=BATCH,
        seed=7,
        dtype="float32",
    ) as loader:
        for epoch in range(EPOCHS):
            losses, samples = [], 0
            for batch in loader:
                loss = policy(batch)
                adam.zero_grad()
                loss.backward()
                adam.step()
                losses.append(loss.detach())
                samples += len(batch["actions"])
            mean = torch.stack(losses).mean()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"epoch {epoch + 1}: loss {mean / ranks:.4f}, {samples} samples per rank")
    # Every rank has the same weights, although no two saw the same samples.
    weights = torch.cat([weight.detach().flatten() for weight in policy.parameters()])
    ours, others = weights.clone(), [torch.empty_like(weights) for _ in range(ranks)]
    dist.all_gather(others, ours)
    if rank == 0:
        same = all(torch.equal(weights, other) for other in others)
        print(f"{ranks} ranks, weights {'equal' if same else 'DIFFER'}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = sys.argv[1] if len(sys.argv) > 1 else "target/demo/lift.kino"
    torch.multiprocessing.spawn(train, (RANKS, port, path), nprocs=RANKS)
