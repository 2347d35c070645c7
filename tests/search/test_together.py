"""Searches by several processes: the weights of one, whatever happens to them."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed import HashStore

from archwright.data import Batches
from archwright.data.request import DataRequest, load_data
from archwright.errors import InputError, Interrupted
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.progress import Progress
from archwright.runs.stop import Stop
from archwright.search.engine import search
from archwright.search.together import Place, check_ranks, meeting_point, name_of_meeting, place_in, with_ranks
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.training import Recipe, train
from archwright.training.team import Team
from helpers.teams import (
    ARCHWRIGHT,
    SMALL,
    TORCHRUN,
    archwright,
    below,
    end,
    follower_of,
    kill,
    start,
    wait_for_epochs,
    weights,
)

CELL = "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|none~0|avg_pool_3x3~1|nor_conv_3x3~2|"
ETHERNET = {"GLOO_SOCKET_IFNAME": "eth0"}
RECIPE = Recipe(epochs=2, batch_size=48, lr=0.05, clip=5.0, ema_decay=0.9, label_smoothing=0.1)


# --- who is who ------------------------------------------------------------------------------------------------------


def test_who_is_who_is_read_from_the_environment() -> None:
    assert place_in({}) == Place()
    torchrun = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert place_in(torchrun) == Place(1, 4, 1, sure=True, here=False)
    assert place_in({**torchrun, "LOCAL_WORLD_SIZE": "4"}).here
    srun = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}
    assert place_in({**srun, "SLURM_STEP_NUM_NODES": "4"}) == Place(5, 8, 1, here=False)
    assert place_in({**srun, "SLURM_STEP_NUM_NODES": "1"}) == Place(5, 8, 1)
    assert place_in({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}) == Place()  # a batch script without srun
    job = {**srun, "SLURM_STEP_NUM_NODES": "4", "SLURM_JOB_ID": "20005"}
    assert meeting_point({**job, "SLURM_STEP_NODELIST": "gpu[07-09],x2"}) == ("gpu07", 20005)
    assert meeting_point({**job, "SLURM_STEP_NODELIST": "alpha,beta"})[0] == "alpha"
    assert meeting_point({**job, "SLURM_STEP_NODELIST": "rack[2-3]node[05,07],x"})[0] == "rack2node05"
    assert meeting_point({**job, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "alpha"})[0] == "127.0.0.1"


def test_processes_that_are_gone_are_not_met() -> None:
    store = HashStore()
    for key, value in {"leader": "gone", "gone from 1": "x", "gone heard 1": "x", "gone from 2": "y"}.items():
        store.set(key, value)  # one of them was heard when all were killed, the other was not
    with ThreadPoolExecutor(3) as pool:
        followers = [pool.submit(name_of_meeting, store, Place(rank, 3)) for rank in (1, 2)]
        time.sleep(0.2)
        leader = name_of_meeting(store, Place(0, 3))
        assert [one.result(timeout=60) for one in followers] == [leader, leader]
    assert leader != "gone"


def test_processes_are_started_by_one_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="Leave --ranks out"):
        check_ranks(2, 2)


def test_any_number_of_folders_to_find_modules_in_is_sent_along(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "a_module_of_the_last_folder.py").write_text("def follow(team, stop): team.agreed(3)\n")
    sys.path += [str(tmp_path / f"folder-{number}" / ("x" * 60)) for number in range(2000)]  # too long for a variable
    sys.path.append(str(tmp_path / "last"))
    with with_ranks(2, 2, 1) as team:
        assert team is not None
        team.call(importlib.import_module("a_module_of_the_last_folder").follow)
        assert team.agreed(0) == (3,)


# --- trainings with one follower, started once -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> Iterator[Team]:
    with with_ranks(2, 4, 1) as team:
        assert team is not None
        yield team


def small_network() -> nn.Module:
    torch.manual_seed(0)
    scale = NASBENCH201.scales["small"].changed(channels=4, cells=1, image_size=8, image_channels=1, classes=10)
    return NASBENCH201.build(NASBENCH201.parse(CELL), scale)


def trained(team: Team, recipe: Recipe = RECIPE, **how: object) -> tuple[dict[str, torch.Tensor], list]:
    network = small_network()
    images = np.arange(5 * recipe.batch_size)
    batches = Batches(load_data(DataRequest("digits", 0)), "train", recipe.batch_size, seed=1, indices=images)
    history = train(network, batches, recipe, seed=3, team=team, **how)
    return network.state_dict(), history


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_two_processes_train_as_one(pair: Team) -> None:
    alone, together = trained(Team(4)), trained(pair)
    assert same(alone[0], together[0])
    assert alone[1] == together[1]
    assert not same(alone[0], trained(Team(1))[0])  # shards are a setting that is seen


def test_a_teacher_says_the_same_in_every_process(pair: Team) -> None:
    teacher, recipe = small_network().eval(), RECIPE.changed(distill_weight=0.5, batch_size=128)
    assert same(trained(Team(4), recipe, teacher=teacher)[0], trained(pair, recipe, teacher=teacher)[0])


def test_norms_over_the_whole_batch_agree_with_one_process_to_rounding(pair: Team) -> None:
    recipe = RECIPE.changed(sync_norm=True, epochs=1, ema_decay=0.0)
    first = {"length": lambda _: 2}  # rounding grows from step to step
    alone, together = trained(Team(4), recipe, **first)[0], trained(pair, recipe, **first)[0]
    whole, cut = trained(Team(1), recipe, **first)[0], trained(Team(4), recipe.changed(sync_norm=False), **first)[0]
    assert same(alone, whole)
    for name, value in alone.items():
        assert torch.allclose(value, together[name], rtol=1e-4, atol=1e-5), name
    assert not all(torch.allclose(value, cut[name], rtol=1e-4, atol=1e-5) for name, value in alone.items())


def test_the_leader_says_how_long_a_training_is(pair: Team) -> None:
    lengths, recipe = {"length": lambda index: 3 if index < 2 else 5}, RECIPE.changed(epochs=1)
    assert same(trained(Team(4), recipe, **lengths)[0], trained(pair, recipe, **lengths)[0])


def test_a_stop_is_one_of_all_and_a_training_goes_on_alone(pair: Team, tmp_path: Path) -> None:
    stop, store = Stop(), Checkpoints(tmp_path)

    def on_step(position: object) -> None:
        if position.index == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    with stop.on_signals(), pytest.raises(Interrupted):
        trained(pair, checkpoints=store, stop=stop, on_step=on_step)
    assert store.latest()[0] == 7
    assert same(trained(Team(4), checkpoints=store)[0], trained(Team(4))[0])


def test_a_leader_that_leaves_takes_the_others_with_it(pair: Team) -> None:
    def fail(_epoch: int, _metrics: dict[str, float]) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError):
        trained(pair, on_epoch=fail)
    assert same(trained(Team(4))[0], trained(pair)[0])


def test_what_only_this_process_has_is_refused(pair: Team) -> None:
    class Here(nn.Linear):
        pass

    batches = Batches(load_data(DataRequest("digits", 0)), "train", 48)
    with pytest.raises(InputError, match="Put it into a module"):
        train(Here(64, 10), batches, RECIPE, seed=0, team=pair)
    assert same(trained(Team(4))[0], trained(pair)[0])  # nobody was called


def test_nothing_listens_beyond_this_machine(pair: Team) -> None:
    own = {os.getpid(), *below(os.getpid())}
    sockets = {str(fd.readlink()) for one in own for fd in Path(f"/proc/{one}/fd").iterdir() if fd.is_symlink()}
    heard = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                heard.append(fields[1].split(":")[0])
    assert heard, "gloo listens somewhere"
    loopback = socket.inet_aton("127.0.0.1")[::-1].hex().upper()
    assert set(heard) == {loopback}


# --- on the command line ---------------------------------------------------------------------------------------------


def test_processes_that_do_not_divide_the_shards_are_refused(tmp_path: Path) -> None:
    code, said = archwright("search", *SMALL, "--shards", "3", "--ranks", "2", "--run", str(tmp_path / "run"))
    assert code == 2
    assert "--shards 2" in said
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one process ends with that nobody stops: hashes of its files."""
    run = tmp_path_factory.mktemp("alone") / "run"
    code, said = archwright("search", *SMALL, "--shards", "2", "--run", str(run))
    assert code == 0, said
    assert set(weights(run)) == {"artifacts/best.safetensors", "artifacts/supernet.safetensors"}
    return weights(run)


def test_stopped_killed_and_resumed_on_other_numbers_of_processes_it_ends_with_the_same_weights(
    tmp_path: Path, whole: dict[str, str]
) -> None:
    run = tmp_path / "run"
    process = start(*ARCHWRIGHT, "search", *SMALL, "--shards", "2", "--ranks", "2", "--run", str(run))
    wait_for_epochs(run, 2, process)
    process.send_signal(signal.SIGTERM)
    code, said = end(process)
    assert code == 130, said
    process = start(*ARCHWRIGHT, "runs", "resume", str(run), "--ranks", "2")
    wait_for_epochs(run, 4, process)
    kill(follower_of(process.pid, "follower.py"))
    code, said = end(process)
    assert code == 1, said
    assert "archwright runs resume" in said
    assert "Gloo" not in said.replace("GLOO_SOCKET", "")
    assert "gloo" not in said
    code, said = archwright("runs", "resume", str(run))
    assert code == 0, said
    assert weights(run) == whole


def test_torchrun_restarts_a_resumed_run_after_a_killed_process(tmp_path: Path, whole: dict[str, str]) -> None:
    run = tmp_path / "run"
    process = start(*ARCHWRIGHT, "search", *SMALL, "--shards", "2", "--run", str(run))
    wait_for_epochs(run, 2, process)
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 130
    restarted = (*TORCHRUN, "--max-restarts", "2", "--no-python", "--", *ARCHWRIGHT, "runs", "resume", str(run))
    process = start(*restarted)
    wait_for_epochs(run, 4, process)
    kill(follower_of(process.pid, "RANK=1"))
    code, said = end(process)
    assert code == 0, said
    assert weights(run) == whole


def test_small_shards_are_warned_of_and_shards_without_images_refused(tmp_path: Path) -> None:
    class Said(Progress):
        def __init__(self) -> None:
            self.warned: list[str] = []

        def warn(self, text: str) -> None:
            self.warned.append(text)

    def stop(_event: dict[str, object]) -> None:
        raise Interrupted("seen enough")

    asked = {"data": "digits", "channels": 4, "cells": 1, "search_images": 64, "shards": 4}
    for batch, warned in ((8, 1), (64, 0)):
        said = Said()
        with pytest.raises(Interrupted):
            search("darts", **asked, search_batch=batch, run=tmp_path / str(batch), callbacks=[stop], progress=said)
        assert sum("shards of 2 images" in text for text in said.warned) == warned
    with pytest.raises(InputError, match="each of 4 shards"):
        search("darts", **asked, batch_size=2, run=tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


# --- longer ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tasks_of_srun_are_one_team(tmp_path: Path, whole: dict[str, str]) -> None:
    port = free_port()
    job = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "here", "MASTER_PORT": port}
    command = (*ARCHWRIGHT, "search", *SMALL, "--shards", "2", "--run", str(tmp_path / "run"))
    tasks = [start(*command, **job, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank)) for rank in (0, 1)]
    assert [end(task)[0] for task in tasks] == [0, 0]
    assert weights(tmp_path / "run") == whole


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


@pytest.fixture
def machines() -> Iterator[list[tuple[str, ...]]]:
    """What starts a command on each of two "machines": network namespaces with a cable between them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and iproute2, for two network namespaces")
    names = [f"aw{os.getpid()}{letter}" for letter in "ab"]

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr}")
    yield [("ip", "netns", "exec", name) for name in names]
    for name in names:
        ip("netns", "del", name)


@pytest.mark.slow
def test_two_machines_are_one_team(tmp_path: Path, machines: list[tuple[str, ...]], whole: dict[str, str]) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1")
    meeting = ("--rdzv-backend", "c10d", "--rdzv-id", "two", "--rdzv-endpoint", "10.77.0.1:29400", "--local-addr")
    asked = ("--no-python", "--", *ARCHWRIGHT, "search", *SMALL, "--shards", "2", "--run", str(tmp_path / "run"))
    agents = [
        start(*machine, *torchrun, *meeting, f"10.77.0.{n}", "--rdzv-conf", f"is_host={2 - n}", *asked, **ETHERNET)
        for n, machine in enumerate(machines, 1)
    ]
    assert [end(one)[0] for one in agents] == [0, 0]
    assert weights(tmp_path / "run") == whole


@pytest.mark.slow
def test_every_method_ends_with_the_same_files_on_one_process_by_torchrun_and_by_ranks() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "golden.py"
    done = subprocess.run([sys.executable, str(script), "teams"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
