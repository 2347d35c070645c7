"""Chapter 5 of the thesis at a scale that one core can do: ensembles of architectures by Bayesian sampling.

The space is NAS-Bench-201, networks have 8 channels and one cell a stage at 16 px. Supernets (with their posteriors)
and trained networks are kept in a folder that all studies here share, by what they depend on, so that a killed study
goes on and tables of the same networks do not train them again.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from archwright.analysis.robustness import attack_and_defend, require_toolbox
from archwright.data import Batches
from archwright.ensembles import Ensemble, EnsembleReport
from archwright.methods.nesbs import Nesbs
from archwright.methods.nesbs_ensembles import DELTAS, Inherited, distinct, greedy, mean_loss
from archwright.models import Model, load_member
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished, name_of
from archwright.reproduce.thesis5_members import plot_members
from archwright.runs.files import save_figure
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.search.final import train_answer
from archwright.solvers.svgd import Floats, ensemble_error, figure_5_2_target, mean_pairwise_distance, sample
from archwright.spaces.base import Architecture, Network
from archwright.spaces.operations import DropPath
from archwright.supernets.posterior import Sampler

CHANNELS, CELLS, IMAGE_SIZE = 8, 1, 16
SUPERNET_EPOCHS, POSTERIOR_EPOCHS, FINAL_EPOCHS = 115, 30, 10
"""The supernet has some 5,000 steps on 5,600 images; what fewer do to its order is table 5.6's (supernet_order.py)."""
SIZE, CANDIDATES, POOL, SEEDS = 3, 5, 12, 3
STEPS = 1000
FIGURE_SIZES = (3, 5)
BUDGETS = (1, 2, 5, 10)
"""Ensembles that are scored, in figures 5.3 and 5.6."""
TEMPERATURES = (0.1, 1.0, 10.0)
FIGURE_5_7_DELTAS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0)
COMPARED = 100
"""Random architectures that the most likely one is compared with."""
ATTACKED_IMAGES = 200
"""Test images of every attack."""
LABELS = {
    "deep": "DeepEns",
    "nes-rs": "NES-RS",
    "uniform": "uniform",
    "mc": "NESBS (MC)",
    "svgd-rd": "NESBS (SVGD-RD)",
}
DROP_PATH = 0.2
TABLE_5_1 = {"deep": 5.75, "nes-rs": 5.83, "mc": 5.76, "svgd-rd": 5.92}
TABLE_5_4 = {
    "deep": {"fgsm": (76.79, 88.21), "pgd-40": (57.71, 82.02), "cw": (26.90, 82.46), "autoattack": (29.97, 49.67)},
    "nes-rs": {"fgsm": (79.19, 89.32), "pgd-40": (65.59, 85.22), "cw": (37.20, 86.75), "autoattack": (35.00, 53.80)},
    "mc": {"fgsm": (78.75, 89.15), "pgd-40": (63.60, 85.35), "cw": (37.71, 86.86), "autoattack": (36.02, 56.90)},
    "svgd-rd": {"fgsm": (79.12, 89.86), "pgd-40": (65.53, 85.37), "cw": (38.27, 86.00), "autoattack": (37.55, 57.15)},
}
TABLE_5_5 = {"deep": (2.69, 2.08), "nes-rs": (2.87, 2.29), "mc": (2.80, 2.57), "svgd-rd": (2.78, 2.27)}
TABLE_5_7 = {("mc", "best-response"): 4.74, ("mc", "post-training"): 4.54,
             ("svgd-rd", "best-response"): 4.81, ("svgd-rd", "post-training"): 4.48}  # fmt: skip


def scale_text(seeds: int) -> str:
    """The scale of the study in words."""
    return (
        f"NAS-Bench-201 at {CHANNELS} channels, {CELLS} cell(s) a stage, {IMAGE_SIZE} px; supernet {SUPERNET_EPOCHS}, "
        f"posterior {POSTERIOR_EPOCHS}, final networks {FINAL_EPOCHS} epochs; {seeds} seed(s)"
    )


# --- what the studies share ------------------------------------------------------------------------------------------


@dataclass
class Kept:
    """A trained supernet with its posterior as a finished run, and the networks trained from scratch beside it."""

    settings: Settings
    seed: int
    posterior: str = "post-training"

    @property
    def asked(self) -> dict[str, Any]:
        """Settings of the run; its own small ensemble makes it a whole search."""
        return {
            "space": "nasbench201",
            "data": self.settings.images().spec,
            "seed": self.seed,
            "channels": CHANNELS,
            "cells": CELLS,
            "image_size": IMAGE_SIZE,
            "final_epochs": FINAL_EPOCHS,
            "sampler": "mc",
            "size": 2,
            "candidates": 1,
            "posterior": self.posterior,
            "supernet_epochs": SUPERNET_EPOCHS,
            "posterior_epochs": POSTERIOR_EPOCHS,
        }

    @cached_property
    def folder(self) -> Path:
        """Of the run, by everything it depends on; searched if it is not there yet."""
        folder = self.settings.folder.parent / "nesbs-supernets" / name_of(self.asked)[:12]
        finished(folder, "nesbs", self.settings.progress, **self.asked)
        return folder

    def method(self, training: dict[str, float] | None = None, **options: Any) -> Nesbs:
        """The search on this supernet with other options, and other fields of the recipe.

        Args:
            training: fields of the recipe; None leaves them.
            options: of nesbs.
        """
        run = Run.open(self.folder)
        changed = {
            **run.configuration["options"],
            "candidates": CANDIDATES,
            "pool": POOL,
            "svgd_steps": STEPS,
            **options,
        }
        recipe = {"training": training} if training else {}
        method = reopened(run, Stop(), self.settings.progress, options=changed, **recipe)
        assert isinstance(method, Nesbs)
        return method

    def chosen(self, sampler: str) -> list[Architecture]:
        """The members that ``sampler`` ends with."""
        method = self.method(sampler=sampler, size=SIZE)
        return [method.space.parse(text) for text in method.draw().chosen.architectures]

    def trained(self, architecture: Architecture, number: int = 0, drop_path: float = 0.0) -> Model:
        """A network trained from scratch, kept.

        Args:
            architecture: of the network.
            number: tells several of one architecture apart.
            drop_path: probability of dropping a path in training.
        """
        context = self.method(training={"drop_path": drop_path} if drop_path else None).context
        dropped = f" drop-path {drop_path}" if drop_path else ""
        key = hashlib.sha256(f"{architecture} {number}{dropped}".encode()).hexdigest()[:16]
        path = context.run.artifact(f"members/{key}.safetensors")
        if not path.is_file():
            seed = int(context.rng("kept member", int(key[:8], 16)).integers(2**31))
            train_answer(context, architecture, f"members/{key}", stage=f"members-{key}", seed=seed, onnx=False)
            context.run.checkpoints(f"members-{key}").clear()
        return load_member(path)

    def ensemble(self, sampler: str) -> Ensemble:
        """The ensemble of ``sampler``, trained from scratch."""
        members: list[Model] = []
        seen: list[Architecture] = []
        for architecture in self.chosen(sampler):
            members.append(self.trained(architecture, seen.count(architecture)))
            seen.append(architecture)
        return Ensemble(tuple(members))

    def dropped_paths(self) -> tuple[float, float]:
        """Test errors of MC drop-path: the deep ensemble's architecture, paths dropped in training and when it answers.

        The mean of ``SIZE`` passes with random paths dropped, and the network without dropping, as usual.
        """
        model = self.trained(self.chosen("deep")[0], drop_path=DROP_PATH)
        data = self.method().context.task.data
        batches = list(Batches(data, "test", 256, shuffle=False, drop_last=False))
        labels = np.concatenate([y.numpy() for _, y in batches])
        passes = [stochastic_probabilities(model, [x for x, _ in batches], DROP_PATH, k) for k in range(SIZE)]
        usual = np.concatenate([model.probabilities(x).numpy() for x, _ in batches]).astype(np.float64)
        return ensemble_error(passes, labels), ensemble_error([usual], labels)

    def predicted(self, ensemble: Ensemble) -> list[NDArray[np.int64]]:
        """The class that each member gives every test image, (images,) a member."""
        batches = list(Batches(self.method().context.task.data, "test", 256, shuffle=False, drop_last=False))
        return [
            np.concatenate([one.probabilities(x).numpy().argmax(1) for x, _ in batches]) for one in ensemble.members
        ]

    def report(self, ensemble: Ensemble) -> EnsembleReport:
        """On the test images."""
        data = self.method().context.task.data
        return ensemble.report(Batches(data, "test", 256, shuffle=False, drop_last=False))


def over_seeds(settings: Settings, samplers: Sequence[str]) -> tuple[int, dict[str, list[EnsembleReport]]]:
    """The number of seeds, and test reports of each sampler's trained ensemble, one a seed.

    Args:
        settings: seeds, folder and progress.
        samplers: their names.
    """
    seeds = settings.seeds or SEEDS
    found: dict[str, list[EnsembleReport]] = {sampler: [] for sampler in samplers}
    for seed in range(seeds):
        kept = Kept(settings, seed)
        for sampler in samplers:
            settings.progress.say(f"seed {seed}: {LABELS[sampler]}")
            found[sampler].append(kept.report(kept.ensemble(sampler)))
    return seeds, found


@torch.no_grad()
def stochastic_probabilities(model: Model, images: Sequence[torch.Tensor], drop_path: float, seed: int) -> Floats:
    """Class probabilities (n, classes) of one pass in which each image drops paths at random, norms as in use.

    Args:
        model: trained with drop-path.
        images: batches (B, C, H, W), n in all.
        drop_path: probability of dropping a path.
        seed: of the drops.
    """
    network = model.network.eval()
    assert isinstance(network, Network)
    network.drop_path = drop_path
    dropping = [module for module in network.modules() if isinstance(module, DropPath)]
    try:
        for module in dropping:
            module.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            parts = [torch.softmax(network(x), dim=1).numpy() for x in images]
    finally:
        network.drop_path = 0.0
        network.eval()
    return np.concatenate(parts).astype(np.float64)


NOTE_PAPER = "the thesis trains full-size networks (DARTS or NAS-Bench-201) on all of CIFAR-10 on a GPU"


# --- tables after training from scratch ------------------------------------------------------------------------------


@needs()
def table_5_1(settings: Settings) -> Outcome:
    """Test error of ensembles of three, trained from scratch."""
    seeds, found = over_seeds(settings, tuple(LABELS))
    rows = [Row.of(LABELS[s], "test error %", TABLE_5_1.get(s), [one.error for one in r]) for s, r in found.items()]
    for sampler, reports in found.items():
        rows.append(Row.of(f"{LABELS[sampler]}, mean member", "test error %", None, [one.ate for one in reports]))
        best = [min(one.member_errors) for one in reports]
        rows.append(Row.of(f"{LABELS[sampler]}, best member", "test error %", None, best))
    dropped = [Kept(settings, seed).dropped_paths() for seed in range(seeds)]
    rows.append(Row.of("MC drop-path", "test error %", None, [one for one, _ in dropped]))
    rows.append(Row.of("MC drop-path, nothing dropped", "test error %", None, [one for _, one in dropped]))
    notes = [
        f"MC drop-path: DeepEns' architecture trained once with paths dropped at {DROP_PATH:g}, {SIZE} passes averaged",
        settings.images_note(),
        NOTE_PAPER,
        f"NES-RS and DeepEns choose from a pool of {POOL} by inherited weights",
    ]
    return Outcome(scale_text(seeds), rows, notes)


@needs()
def table_5_5(settings: Settings) -> Outcome:
    """ATE and PPD of the ensembles of table 5.1; the picture is figure 5.4."""
    seeds, found = over_seeds(settings, tuple(TABLE_5_5))
    rows = []
    for sampler, reports in found.items():
        ate, ppd = TABLE_5_5[sampler]
        rows.append(Row.of(f"{LABELS[sampler]} ATE", "%", ate, [one.ate for one in reports]))
        rows.append(Row.of(f"{LABELS[sampler]} PPD", "%", ppd, [one.ppd for one in reports]))
        rows.append(Row.of(f"{LABELS[sampler]} ECE", "%", None, [one.ece for one in reports]))
    errors = {LABELS[sampler]: [e for one in reports for e in one.member_errors] for sampler, reports in found.items()}
    kept = Kept(settings, 0)
    predicted = {LABELS[sampler]: kept.predicted(kept.ensemble(sampler)) for sampler in found}  # nothing is trained
    notes = [
        settings.images_note(),
        NOTE_PAPER,
        "the thesis gives no ECE",
        "plot.png is figure 5.4: errors of the members, and those of seed 0 by how their predictions differ",
    ]
    return Outcome(scale_text(seeds), rows, notes, lambda path: plot_members(errors, predicted, path))


@needs()
def table_5_4(settings: Settings) -> Outcome:
    """Accuracy of the attacked member, and of the ensemble on the same images; n rounds a seed."""
    require_toolbox()
    seeds = settings.seeds or 1
    numbers: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for seed in range(seeds):
        kept = Kept(settings, seed)
        data = kept.method().context.task.data
        for sampler, attacks in TABLE_5_4.items():
            ensemble = kept.ensemble(sampler)
            for attack in attacks:
                chosen = np.arange(min(ATTACKED_IMAGES, len(data.test)))
                pixels, labels = data.test.pixels(chosen).float() / 255, torch.from_numpy(data.test.labels[chosen])
                settings.progress.say(f"seed {seed}: {attack} on {LABELS[sampler]}")
                found = attack_and_defend(ensemble, pixels, labels, attack, seed=seed)
                attacked, defended = numbers.setdefault((sampler, attack), ([], []))
                attacked += found.attacked
                defended += found.defended
    rows = []
    for (sampler, attack), values in numbers.items():
        for what, paper, ours in zip(("attack", "defence"), TABLE_5_4[sampler][attack], values, strict=True):
            rows.append(Row.of(f"{LABELS[sampler]} {attack} {what}", "accuracy %", paper, ours))
    notes = [
        settings.images_note(),
        NOTE_PAPER,
        f"every attack on the first {ATTACKED_IMAGES} test images; the thesis' DeepEns is of DARTS' published cell",
        "CW has no bound on the distance and c of .1 to 10",
    ]
    return Outcome(scale_text(seeds), rows, notes)


@needs()
def table_5_7(settings: Settings) -> Outcome:
    """Ensembles from the post-training posterior and from its best-response counterpart, trained from scratch."""
    seeds = settings.seeds or 1
    rows = []
    for (sampler, posterior), paper in TABLE_5_7.items():
        errors = []
        for seed in range(seeds):
            kept = Kept(settings, seed, posterior)
            errors.append(kept.report(kept.ensemble(sampler)).error)
        rows.append(Row.of(f"{LABELS[sampler]}, {posterior}", "test error %", paper, errors))
    return Outcome(scale_text(seeds), rows, [settings.images_note(), NOTE_PAPER])


# --- figures with inherited weights ----------------------------------------------------------------------------------


@dataclass
class Budgeted:
    """Ensembles of one size on one supernet: chosen by validation loss, reported by test error, inherited weights."""

    method: Nesbs
    size: int

    @cached_property
    def validation(self) -> Inherited:
        """What ensembles are chosen by."""
        return self.method.inherited()

    @cached_property
    def test(self) -> Inherited:
        """Inherited answers on the test images, which are reported."""
        return self.method.inherited("test")

    def error(self, members: Sequence[Architecture]) -> float:
        """Test error in percent."""
        return self.test.score(members).error

    def loss(self, members: Sequence[Architecture]) -> float:
        """Loss of the ensemble on the validation images."""
        return mean_loss([self.validation.of(one) for one in members], self.validation.labels)

    def curve(self, draw: Callable[[int], list[Architecture]]) -> list[float]:
        """Test error of the best ensemble after each of :data:`BUDGETS` draws."""
        drawn = [draw(number) for number in range(max(BUDGETS))]
        losses = [self.loss(one) for one in drawn]
        return [self.error(drawn[int(np.argmin(losses[:budget]))]) for budget in BUDGETS]

    def greedy_curve(self) -> list[float]:
        """NES-RS with as many networks as the others evaluate."""
        rng, uniform = self.method.context.rng("figure pool"), Sampler(self.method.space)
        count = max(BUDGETS) * self.size
        pool = distinct(self.method.space, (uniform.monte_carlo(rng) for _ in range(100 * count)), count)
        chosen = [greedy(pool[: budget * self.size], self.size, self.loss) for budget in BUDGETS]
        return [self.error(one) for one in chosen if one is not None]

    def independent(self, sampler: Sampler) -> Callable[[int], list[Architecture]]:
        """Draws of different members; a sharp posterior may have fewer of them."""

        def draw(number: int) -> list[Architecture]:
            rng = self.method.context.rng("figure draw", number)
            return distinct(self.method.space, (sampler.monte_carlo(rng) for _ in range(500)), self.size)

        return draw

    def repelled(self, sampler: Sampler, deltas: Sequence[float] = DELTAS) -> Callable[[int], list[Architecture]]:
        """SVGD-RD with the deltas in turn; particles on one architecture count once.

        Args:
            sampler: of the posterior.
            deltas: weights of the diversity.
        """

        def draw(number: int) -> list[Architecture]:
            rng = self.method.context.rng("figure particles", number)
            delta = deltas[number % len(deltas)]
            found = sampler.particles(self.size, rng, delta=delta, steps=STEPS)
            return distinct(self.method.space, iter(found), self.size)

        return draw


def _single_best(budgeted: Budgeted) -> float:
    """Test error of the network of least validation loss of those evaluated."""
    known = [budgeted.method.space.parse(text) for text in budgeted.validation.known]
    return budgeted.error([min(known, key=lambda one: budgeted.loss([one]))])


FIGURE_NOTES = [
    "ensembles are chosen by validation loss and reported on test images, both with the supernet's weights",
    "the thesis shows these results as curves without numbers",
    "SVGD-RD takes the deltas -0.75, -0.5, 0, 0.5, 1 in turn; members on one architecture count once",
]


@needs()
def figure_5_3(settings: Settings) -> Outcome:
    """Error against the number of evaluated ensembles for four ways to find them."""
    seeds = settings.seeds or SEEDS
    curves: dict[tuple[int, str], list[list[float]]] = {}
    for seed, size in itertools.product(range(seeds), FIGURE_SIZES):
        method = Kept(settings, seed).method(sampler="mc", size=size)
        budgeted, posterior = Budgeted(method, size), method.sampler()
        found = {
            "uniform": budgeted.curve(budgeted.independent(Sampler(method.space))),
            "nes-rs": budgeted.greedy_curve(),
            "mc": budgeted.curve(budgeted.independent(posterior)),
            "svgd-rd": budgeted.curve(budgeted.repelled(posterior)),
        }
        for name, values in found.items():
            curves.setdefault((size, LABELS[name]), []).append(values)
        curves.setdefault((size, "best single network"), []).append([_single_best(budgeted)] * len(BUDGETS))
    rows = []
    for (size, label), over in curves.items():
        for budget, column in zip(BUDGETS, zip(*over, strict=True), strict=True):
            rows.append(Row.of(f"n = {size} {label}, {budget} ensembles", "test error %", None, column))
    return Outcome(scale_text(seeds), rows, [settings.images_note(), *FIGURE_NOTES])


def _by_seed(settings: Settings, size: int) -> list[Budgeted]:
    """One a seed, whatever is asked of it: what it has predicted once is not predicted again."""
    seeds = settings.seeds or SEEDS
    return [Budgeted(Kept(settings, seed).method(sampler="mc", size=size), size) for seed in range(seeds)]


@needs()
def figure_5_5(settings: Settings) -> Outcome:
    """How much worse the most likely architecture of each posterior is than the best of many, inherited weights."""
    seeds, rows = settings.seeds or SEEDS, []
    for posterior in ("post-training", "best-response"):
        gaps, bests, places = [], [], []
        for seed in range(seeds):
            method = Kept(settings, seed, posterior).method(sampler="mc", size=SIZE)
            rng, uniform = np.random.default_rng(seed), Sampler(method.space)
            drawn = distinct(method.space, (uniform.monte_carlo(rng) for _ in range(100 * COMPARED)), COMPARED)
            test, likely = method.inherited("test"), method.sampler().most_likely()
            errors = np.array([test.score([one]).error for one in drawn])
            own = test.score([likely]).error
            bests.append(float(min(errors.min(), own)))
            gaps.append(own - bests[-1])
            places.append(100 * float((errors < own).mean()))
        rows.append(Row.of(f"{posterior}, discrepancy", "points of test error", None, gaps))
        rows.append(Row.of(f"{posterior}, best architecture", "test error %", None, bests))
        rows.append(Row.of(f"{posterior}, architectures better than the most likely", "%", None, places))
    notes = [
        f"the best of {COMPARED} random architectures and the most likely one, by the supernet's weights",
        "the thesis shows bars without numbers: its post-training posterior has the smaller discrepancy",
        settings.images_note(),
    ]
    return Outcome(scale_text(seeds), rows, notes)


@needs()
def figure_5_6(settings: Settings) -> Outcome:
    """Independent draws and SVGD-RD from posteriors of other temperatures."""
    size, rows = max(FIGURE_SIZES), []
    by_seed, asked = _by_seed(settings, size), list(itertools.product(TEMPERATURES, ("mc", "svgd-rd")))
    with settings.progress.task("temperatures and samplers", len(asked)) as bar:
        for temperature, name in asked:
            curves = []
            for budgeted in by_seed:
                sampler = budgeted.method.sampler(temperature)
                draw = budgeted.independent(sampler) if name == "mc" else budgeted.repelled(sampler)
                curves.append(budgeted.curve(draw))
            for budget, column in zip(BUDGETS, zip(*curves, strict=True), strict=True):
                label = f"tau = {temperature:g} {LABELS[name]}, {budget} ensembles"
                rows.append(Row.of(label, "test error %", None, column))
            bar.advance()
    return Outcome(scale_text(len(by_seed)), rows, [settings.images_note(), f"n = {size}", *FIGURE_NOTES])


@needs()
def figure_5_7(settings: Settings) -> Outcome:
    """SVGD-RD by delta under posteriors of other temperatures."""
    size, rows = max(FIGURE_SIZES), []
    by_seed, asked = _by_seed(settings, size), list(itertools.product(TEMPERATURES, FIGURE_5_7_DELTAS))
    with settings.progress.task("temperatures and deltas", len(asked)) as bar:
        for temperature, delta in asked:
            samplers = [(one, one.method.sampler(temperature)) for one in by_seed]
            errors = [one.curve(one.repelled(sampler, (delta,)))[-1] for one, sampler in samplers]
            rows.append(Row.of(f"tau = {temperature:g} delta = {delta:g}", "test error %", None, errors))
            bar.advance()
    notes = [settings.images_note(), f"n = {size}, the best of {max(BUDGETS)} ensembles", *FIGURE_NOTES[:2]]
    return Outcome(scale_text(len(by_seed)), rows, notes)


# --- figure 5.2 ------------------------------------------------------------------------------------------------------

FIGURE_5_2 = {
    "delta = -1.5, bandwidth 1": (-1.5, 1.0),
    **{f"delta = {delta:g}": (delta, None) for delta in (-0.5, 0.0, 0.5, 1.0, 2.0)},
}
"""Delta and the kernel's bandwidth; the median heuristic's shrinks with the particles and hides the collapse."""
PARTICLES = 15


@needs(images=False)
def figure_5_2(settings: Settings) -> Outcome:
    """Fifteen particles on a mixture of two Gaussians: the more delta, the farther apart; below -1 they collapse."""
    target, seeds = figure_5_2_target(), settings.seeds or 5
    found = {label: list(_figure_5_2_particles(*how, seeds)) for label, how in FIGURE_5_2.items()}
    rows = [
        Row.of(label, "mean pairwise distance", None, [mean_pairwise_distance(x) for x in particles])
        for label, particles in found.items()
    ]

    def plot(path: Path) -> None:
        _plot_particles(target.log_terms, {label: particles[0] for label, particles in found.items()}, path)

    notes = [
        "the thesis' scale: L = 1000, n = 15, rate .1; momentum .9; bandwidth by the median heuristic but where said",
        "the thesis shows particles, no distances",
    ]
    return Outcome(f"exact scale; {seeds} starts", rows, notes, plot)


def _figure_5_2_particles(delta: float, bandwidth: float | None, seeds: int) -> Iterator[Floats]:
    for seed in range(seeds):
        start = np.random.default_rng(seed).standard_normal((PARTICLES, 2))
        yield sample(figure_5_2_target().gradient, start, delta=delta, steps=1000, bandwidth=bandwidth)


def _plot_particles(log_terms: Callable[[Floats], Floats], particles: dict[str, Floats], path: Path) -> None:
    """Contours of the density and the particles, a panel a delta, as in the thesis."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    axis = np.linspace(-4, 4, 81)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = np.exp(log_terms(grid)).sum(axis=1).reshape(81, 81)
    figure, axes = plt.subplots(1, len(particles), figsize=(2.4 * len(particles), 2.6), squeeze=False)
    for panel, (label, points) in zip(axes[0], particles.items(), strict=True):
        panel.contour(axis, axis, density, levels=6, linewidths=0.6)
        panel.plot(points[:, 0], points[:, 1], "o", color="tab:red", markersize=3)
        panel.set_title(label, fontsize=8)
        panel.tick_params(labelsize=6)
    figure.tight_layout()
    save_figure(figure, path)
    plt.close(figure)
