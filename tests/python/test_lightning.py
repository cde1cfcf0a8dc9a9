"""The loader under Lightning and Accelerate: sharding, epochs, and checkpoints."""

import multiprocessing
import os
import socket

import pytest
from optional import optional

import kinograph

torch = optional("torch")

import kinograph.torch  # noqa: E402 (needs torch)

pytestmark = pytest.mark.filterwarnings("default")  # warnings of these libraries are not errors
STEPS = 22


def make(dataset, **options):
    """Make a loader whose epochs all have the same length, as Lightning expects."""
    request = {"actions": range(4), "obs/joints": [0]}
    defaults = {"windows": request, "batch_size": 16, "seed": 3, "drop_last": True}
    return kinograph.torch.Loader(dataset, **defaults | options)


def plain(dataset, steps, **options):
    """Return what a plain loop sees."""
    loader = make(dataset, **options)
    sums = []
    while len(sums) < steps:
        sums += [float(batch["actions"].sum()) for batch in loader]
    return sums[:steps]


def run_two_ranks(target, *arguments):
    """Run a function in two forked processes that find each other through torch's environment variables."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    ranks = [
        context.Process(target=target, args=(rank, port, answers, *arguments)) for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    found = dict(answers.get(timeout=300) for _ in ranks)
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
    return found


def set_rank(rank, port):
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}


@pytest.fixture
def lightning():
    return optional("lightning")


def to_module(lightning, dataset):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(7, 28)
            self.seen = []

        def training_step(self, batch, _):
            self.seen.append(float(batch["actions"].sum()))
            found = self.layer(batch["obs/joints"][:, 0]).view(-1, 4, 7)
            return (found - batch["actions"].float()).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

        def train_dataloader(self):
            # Created here, because the process group, and with it the rank, exists by now.
            return make(dataset)

    return Module()


def to_trainer(lightning, folder, **options):
    defaults = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "devices": 1}
    defaults |= {"max_steps": STEPS, "max_epochs": -1, "enable_model_summary": False}
    defaults |= {"default_root_dir": folder, "enable_checkpointing": False}
    return lightning.Trainer(**defaults | options)


def test_a_trainer_sees_the_batches_of_the_loader_epoch_after_epoch(lightning, lift, tmp_path):
    module = to_module(lightning, lift)
    to_trainer(lightning, tmp_path).fit(module, train_dataloaders=make(lift))
    assert module.seen == plain(lift, STEPS)


def test_a_trainer_resumes_in_the_middle_of_an_epoch(lightning, lift, tmp_path):
    keep = lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=tmp_path, filename="{step}", every_n_train_steps=5, save_top_k=-1
    )
    first = to_module(lightning, lift)
    trainer = to_trainer(
        lightning, tmp_path, max_steps=17, callbacks=[keep], enable_checkpointing=True
    )
    trainer.fit(first)
    second = to_module(lightning, lift)
    to_trainer(lightning, tmp_path).fit(second, ckpt_path=tmp_path / "step=15.ckpt")
    wanted = plain(lift, STEPS)
    assert first.seen == wanted[:17]
    assert second.seen == wanted[15:]


def train_in_rank(rank, port, answers, path, folder):
    set_rank(rank, port)
    lightning = optional("lightning")
    module = to_module(lightning, path)
    trainer = to_trainer(
        lightning, folder, strategy="ddp", devices=2, max_steps=8, plugins=[_environment()]
    )
    trainer.fit(module)
    answers.put((rank, module.seen))


def _environment():
    # Lightning's default environment would start the other rank itself.
    from lightning.pytorch.plugins.environments import TorchElasticEnvironment  # noqa: PLC0415

    return TorchElasticEnvironment()


def test_each_rank_of_a_trainer_gets_its_own_shard(lightning, lift, tmp_path):
    found = run_two_ranks(train_in_rank, lift.path, tmp_path)
    for rank in (0, 1):
        assert found[rank] == plain(lift, 8, rank=rank, world_size=2)


@pytest.fixture
def accelerate():
    return optional("accelerate")


def test_accelerate_does_not_wrap_a_loader_and_saves_its_position(accelerate, lift, tmp_path):
    accelerator = accelerate.Accelerator(cpu=True)
    loader = make(lift)
    assert accelerator.prepare(loader) is loader
    accelerator.register_for_checkpointing(loader)
    steps = iter(loader)
    for _ in range(5):
        next(steps)
    accelerator.save_state(tmp_path)
    wanted = [float(next(steps)["actions"].sum()) for _ in range(3)]
    accelerator.load_state(tmp_path)
    assert [
        float(batch["actions"].sum()) for _, batch in zip(range(3), loader, strict=False)
    ] == wanted


def prepare_in_rank(rank, port, answers, accelerate, path):
    set_rank(rank, port)
    # The parent process may already have created a state with a single rank.
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(make(path))
    answers.put((rank, [float(batch["actions"].sum()) for batch in loader]))
    accelerator.wait_for_everyone()
    accelerator.end_training()


def test_each_rank_of_accelerate_gets_its_own_shard(accelerate, lift):
    found = run_two_ranks(prepare_in_rank, accelerate, lift.path)
    for rank in (0, 1):
        loader = make(lift, rank=rank, world_size=2)
        assert found[rank] == [float(batch["actions"].sum()) for batch in loader]
