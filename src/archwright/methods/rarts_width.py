"""Thin a network you have: score its channels, remove what is worth least for what it costs, tune what is left.

1. ``given``: a network that comes with weights is tested and timed as it is, before anything is changed.
2. ``time``: its layers are timed with fewer channels (:mod:`archwright.costs.layers`), and the whole and the thinnest
   network as files of the back end, so that a latency limit nobody can meet is refused.
3. ``search``: channels are scored (:mod:`archwright.methods.width_scores`): in one pass over some images, or by scores
   that are trained beside the weights. A network without weights is trained here, from scratch.
4. ``remove``: one exact choice of widths for every share or limit that is asked for
   (:mod:`archwright.methods.width_removal`), timed as the file that is delivered.
5. ``train``: every thinned network is fine-tuned, and so is, beside them, the whole one: as it is, and with smaller
   images where it is as quick as a thinned one then.
6. ``answer``: the given network, one network for every share or limit, and the front over all of them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.costs.backends import find_backend
from archwright.costs.clock import MARGIN, Timed, middle_round
from archwright.costs.layers import NetworkTimes, layer_kinds, step_of, time_layers
from archwright.costs.limits import check_numbers
from archwright.costs.measure import Timing
from archwright.data import ImageData
from archwright.errors import InfeasibleError, InputError, RunError, missing_extra
from archwright.export import has_onnx
from archwright.methods.gradients import GradientOptions, GradientSearch
from archwright.methods.width_answer import UNPRUNED, Telling
from archwright.methods.width_given import Given, check_weights
from archwright.methods.width_options import WidthOptions, whole_path
from archwright.methods.width_removal import Chosen, Removal, in_units_of_groups
from archwright.methods.width_scores import Looked, PassScore, Score, Taylor, TrainedScore, scores, weights_step
from archwright.methods.width_subject import (
    SCORED,
    GivenResult,
    RemoveResult,
    Scored,
    Subject,
    Thinned,
    TimeResult,
    TunedNetworks,
)
from archwright.references import refer
from archwright.runs.files import read_metadata, save_weights, write_atomic
from archwright.runs.run import Run
from archwright.search.answer import Found, Spread
from archwright.search.beside import guess
from archwright.search.configuration import OF_TABLES
from archwright.search.evaluator import evaluation_seconds, team_share
from archwright.search.final import keep_answer
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import BY_LATENCY, BY_LIMITS, Options, Stage
from archwright.search.task import Task
from archwright.search.trained import networks_of
from archwright.spaces.base import Network
from archwright.spaces.channel_groups import example_images, takes_channels_last
from archwright.spaces.known_networks import NETWORKS
from archwright.spaces.width import Width, WidthSpace
from archwright.training import Position, Step
from archwright.training.bilevel import (
    Alphas,
    ArchitectureParameters,
    Batch,
    Problem,
    Variable,
    WeightCopy,
    norm,
    sums,
)
from archwright.training.plain import freeze_norms
from archwright.training.schedule import make_schedule

USUAL_L1 = 1e-4
"""Of the scores where a share is given: Network Slimming's."""
SLIMMING_STEPS = 125_000
"""Steps of Network Slimming, 160 epochs on CIFAR-10 in batches of 64, that its constant is for."""
SCRATCH_LR, GIVEN_LR = 0.1, 0.005
"""Learning rate of the weights beside trained scores: from scratch, and from weights that are given."""
LOOKED_AT = 512
"""Training images that a score in one pass looks at, spread evenly."""
SMALLEST_IMAGES, SIZE_STEP = 16, 8
"""Sizes that the whole network is tried at beside: multiples of so many pixels, from so many on."""
FAR_BELOW = 5.0
"""Points below the accuracy that the user says, and three standard errors, from which something must be wrong."""
NEAR_CHANCE = 2.0
"""Standard errors above guessing from which a network knows something."""
OF_SCORES = frozenset(
    {"l1", "lam", "beta", "fused", *(n for n in GradientOptions.model_fields if n.startswith("alpha"))}
)
"""Options of trained scores."""
OF_TRAINED = frozenset({*GradientOptions.model_fields, *OF_SCORES})
"""Options that do something only where scores, or a network from scratch, are trained."""


@dataclass
class Shrinking(Variable):
    """Each step ends by the proximal map of ``l1 |s|``: scores come nearer to 0 by ``rate * l1 * pull``, and stay.

    Gradients are multiplied by ``gain`` first. A channel among C has about 1/C of the say, and so has its score's
    gradient: without a gain in proportion to C the scores of narrow layers would spread most, and go first.

    ``pull`` makes the constant what it is in Network Slimming. There l1 is part of the gradient, which momentum m makes
    1 / (1 - m) times as strong. Where scores are to become 0 by themselves there are 125,000 steps of it; with fewer,
    each pulls so much more, as no score could get there.
    """

    l1: float = 0.0
    gain: Tensor | float = 1.0
    pull: float = 1.0

    def descend(self, gradients: Any, position: Position) -> None:
        """Gradient step, then soft threshold."""
        super().descend([gradient * self.gain for gradient in gradients], position)
        with torch.no_grad():
            for score in self.parameters:
                score.copy_(F.softshrink(score, self.rate(position) * self.l1 * self.pull))


class RartsWidth(GradientSearch):
    """Scores of channels, exact widths, fine-tuning."""

    name = "rarts-width"
    default_space = "width:resnet20"
    uses = GradientSearch.uses - OF_TABLES - {"space", "cells"}  # the space is that of --network
    resources = ("params", "macs", "latency_ms", "channels")
    measures_latency = True
    several_limits = True
    timed_items: ClassVar[tuple[str, ...]] = ("timed",)
    Options: ClassVar[type[Options]] = WidthOptions
    options: WidthOptions

    @classmethod
    def completed(cls, task: Task) -> dict[str, Any]:
        """The space of the network, and the size of image that it says."""
        text = task.configuration.options.get("network", WidthOptions.model_fields["network"].default)
        given = Given(whole_path(refer(text) if callable(text) else str(text)))
        found: dict[str, Any] = {"space": given.space_text}
        if given.text in NETWORKS or "image_size" in task.configuration.model_fields_set:
            return found
        if given.file is None:
            scale = WidthSpace(given.text).named_scale(
                "small", task.data.classes, task.data.image_size, task.data.image_channels
            )
            size = given.said(WidthSpace(given.text, scale).whole()).get("image_size")
        else:
            size = given.said(nn.Identity())["image_size"]
        return found if size is None else {**found, "image_size": size}

    # --- what is thinned ---

    @cached_property
    def subject(self) -> Subject:
        """The network, its images and its channels."""
        return Subject(self.context, self.options)

    @property
    def data(self) -> ImageData:
        """The images as the network sees them."""
        return self.subject.data

    @property
    def timing(self) -> Timing | None:
        """How networks are timed; None where they are not."""
        return self.subject.timing

    @cached_property
    def score(self) -> Score:
        """How channels are scored."""
        made = scores.get(self.subject.score_name)
        return made() if isinstance(made, type) else made  # type: ignore[no-any-return]

    # --- checks ---

    def check(self) -> None:
        """Everything that can be known before the first step."""
        context, task = self.context, self.context.task
        c, o = context.configuration, self.options
        self.check_own()
        if o.scores is not None:
            _ = scores.get(o.scores)
        _ = task.scale, task.recipe, self.subject.space.structure, self.data
        self._check_asked()
        self.halves()
        recipe = self.subject.tuning
        if recipe.drop_path or recipe.auxiliary_weight:
            raise InputError("a recipe without drop-path and auxiliary classifier", c.recipe)
        if self.timing is not None:
            find_backend(self.timing.backend).check()
        if (c.onnx or self.subject.int8) and not has_onnx():
            raise missing_extra("onnx", "onnx", "writing ONNX files")
        self._check_weights()
        self._check_groups()
        if o.search_from is not None:
            self._check_source()
        removal = self.removal(
            np.zeros(self.subject.scores.total), NetworkTimes(step=o.step or 1, tables=[], layers={})
        )
        for limits, _asked in self.targets():
            check_numbers(limits)
            removal.check({name: limit for name, limit in limits.items() if name != "latency_ms"})

    def _check_asked(self) -> None:
        """Refuse what does not go together, or does nothing."""
        c, o, given = self.context.configuration, self.options, set(self.context.configuration.options)
        if not c.limits and not self.shares and o.l1 is None:
            raise InputError("how much stays: --keep-macs, --keep-channels, --keep-params, a limit or --l1", "none")
        for resource in set(self.shares) & set(c.limits):
            raise InputError(f"one of --keep-{resource} and a limit on {resource}", "both")
        if "latency_ms" in c.limits and not o.timing:
            raise InputError("--timing beside a limit on latency_ms", "--no-timing")
        if o.tune_steps is not None and c.final_epochs is not None:
            raise InputError("one of --tune-steps and --final-epochs", "both")
        if o.backend is not None and not o.timing:
            raise InputError("--timing beside --backend", "--no-timing")
        trained = isinstance(self.score, TrainedScore)
        nothing = o.search_from is not None or (self.subject.has_weights and not trained)
        idle = OF_TRAINED if nothing else frozenset() if trained else OF_SCORES
        wrong = sorted(given & idle)
        if wrong:
            named = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
            why = "where nothing is trained before the removal" if nothing else "with a score that is not trained"
            raise InputError("only options that do something", f"{named} {why}", "Leave it out.")
        if not self.subject.has_weights:
            of_given = sorted(given & {"accuracy"})
            if of_given:
                raise InputError(
                    "--accuracy of a network with weights", f"{o.network} without: it is trained from scratch"
                )

    def _check_weights(self) -> None:
        """Refuse weights that are broken, or that know far less of these images than the user says."""
        if not self.subject.has_weights:
            return
        network, said = self.subject.given.network(self.subject.space), self.options.accuracy
        check_weights(network, self.options.network)
        if said is None:
            return
        found = accuracy_of(network, self.data, "validation", self.context.device.name)
        error = 100 * float(np.sqrt(said / 100 * (1 - said / 100) / found.count))
        if found.percent < said - max(FAR_BELOW, 3 * error):
            how = self.data.preprocessing
            raise InputError(
                f"an accuracy near {said:g} % of {self.options.network} on the {found.count} validation images",
                f"{found.percent:.1f} %",
                f"Is it shown images as it was trained? Now: {how.image_size} px, {how.order}, mean "
                f"{_numbers(how.mean)}, std {_numbers(how.std)} (--image-size, --order, --mean, --std, "
                "--preprocessing).",
            )

    def _check_groups(self) -> None:
        """Refuse groups that are asked for and cannot go, and a network without any other."""
        asked = self.subject.asked_groups()
        wrong = [name for name in self.subject.broken if asked is not None and name in asked]
        if wrong or not self.subject.scores.groups:
            named = [*wrong, *self.subject.broken, *self.subject.left_whole, "its layers"][0]
            raise InputError(
                "a network whose layers treat channels one by one between those that mix them",
                f"{self.subject.space.shown}, where channels of {named!r} cannot be removed without changing others",
                "Leave that layer out with --layers." if wrong else "",
            )

    def _check_source(self) -> None:
        """The run to take scores from has some, of this network and these images."""
        source = Run.open(Path(str(self.options.search_from)))
        path = source.folder / "artifacts" / SCORED
        facts = read_metadata(path) if path.is_file() else {}
        wanted = {"network": self.options.network, "fingerprint": str(self.data.fingerprint)}
        if {name: facts.get(name) for name in wanted} != wanted or source.stage_result("search") is None:
            raise InputError(
                f"a run of {self.name} with trained scores of {self.options.network} on the same images",
                str(source.folder),
            )

    # --- what stays ---

    @property
    def shares(self) -> dict[str, tuple[float, ...]]:
        """Shares of resources that stay, by resource."""
        o = self.options
        found = {"channels": o.keep_channels, "macs": o.keep_macs, "params": o.keep_params}
        return {name: values for name, values in found.items() if values}

    def targets(self) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Every combination of limits, the tightest first, as numbers and as they were asked for."""
        whole = self.subject.whole_costs
        limits = {
            name: [(float(one), one) for one in (values if isinstance(values, list) else [values])]
            for name, values in self.context.configuration.limits.items()
        }
        of_scored = {"channels": whole["channels"] - self._unscored}
        for name, values in self.shares.items():
            fixed = self._unscored if name == "channels" else 0
            limits[name] = [(fixed + one * of_scored.get(name, whole[name]), one) for one in values]
        sets = [dict(zip(limits, chosen, strict=True)) for chosen in itertools.product(*limits.values())]
        found = [
            ({name: pair[0] for name, pair in one.items()}, {self._asked(n): pair[1] for n, pair in one.items()})
            for one in sets
        ]
        return sorted(found, key=lambda one: list(one[0].values()))

    def _asked(self, resource: str) -> str:
        return f"keep_{resource}" if resource in self.shares else resource

    @property
    def _unscored(self) -> int:
        """Channels of groups that may not lose any."""
        return sum(group.channels for group in self.subject.space.structure.groups) - self.subject.scores.total

    def removal(self, worth: Any, times: NetworkTimes | None) -> Removal:
        """What chooses widths.

        Args:
            worth: of every channel, (total,).
            times: of the layers, where networks are timed.
        """
        step = self.options.step or (times.step if times is not None else 1)
        timed = times if times is not None and times.tables else None
        weighed = self.score.by_resource and not self.options.uniform
        return Removal(
            self.subject.space, self.subject.scores, np.asarray(worth), weighed, self.options.keep, step, timed
        )

    # --- stages ---

    def estimate_seconds(self) -> float:
        """The search and the fine-tunings."""
        epochs = self.subject.tune_steps / max(1, len(self.data.train) // self.subject.tuning.batch_size)
        rounds = (len(self.targets()) + (2 if self.options.compare else 0)) * epochs / self.context.task.recipe.epochs
        searched = self.options.search_from is None and (
            isinstance(self.score, TrainedScore) or not self.subject.has_weights
        )
        search = self.search_seconds() if searched else 0.0
        return team_share(self.context) * (search + rounds * evaluation_seconds(self.context))

    def batch_sizes(self) -> list[int]:
        """Also those of the fine-tuning."""
        return [*super().batch_sizes(), self.subject.tuning.batch_size]

    def stages(self) -> list[Stage]:
        """The given network, times, scores, widths, fine-tuning and answer, as the options ask."""
        redone = BY_LIMITS | BY_LATENCY
        given = [Stage("given", "test the given network", self._given)]
        timing = [Stage("time", "time its layers", self._time, redone=BY_LATENCY)]
        return [
            *(given if self.subject.has_weights else []),
            *(timing if self.options.timing else []),
            Stage("search", "score its channels", self._scored),
            Stage("remove", "choose widths", self._remove, redone=redone),
            Stage("train", "fine-tune", self._tune, redone=redone),
            self.beside_stage(
                lambda: self.subject.space.parse(self.result("remove", RemoveResult).chosen[-1].architecture)
            ),
            Stage("answer", "answer", self._found, redone=redone),
        ]

    # --- the given network ---

    def _given(self) -> GivenResult:
        """Test and save it as it came, and say what it is."""
        context, how, space = self.context, self.data.preprocessing, self.subject.space
        network = self.subject.given.network(space).to(context.device.name)
        trained = keep_answer(context, network, space.full, space.scale, "given", 0, onnx=has_onnx(), data=self.data)
        chance = float(guess(self.data)["accuracy"])
        said = "as it says" if self.subject.said else "by the training images, as the network says none (--mean, --std)"
        context.progress.say(
            f"The given network has {trained.validation_accuracy:.2f} % on validation and {trained.accuracy:.2f} % on "
            f"test, at {how.image_size} px, {how.order}, mean {_numbers(how.mean)}, std {_numbers(how.std)} ({said})."
        )
        count = len(self.data.validation)
        error = 100 * float(np.sqrt(chance / 100 * (1 - chance / 100) / count))
        if trained.validation_accuracy < chance + NEAR_CHANCE * error:
            context.progress.say(
                f"Warning: guessing has {chance:.1f} %. The network knows nothing of these images, or is not shown "
                "them as it was trained (--image-size, --order, --mean, --std, --preprocessing)."
            )
        return GivenResult(trained=trained, preprocessing=how.to_dict(), chance=chance)

    # --- latencies ---

    def _time(self) -> TimeResult:
        """Layers by their widths, the whole network and the thinnest; a limit below the latter is refused."""
        timing, network, structure = self.timing, self.subject.space.whole(), self.subject.space.structure
        assert timing is not None
        kinds = {
            name: kind
            for name, kind in layer_kinds(network, example_images(self.subject.space.scale)).items()
            if name in structure.shapes
        }
        step = self.options.step or step_of(kinds, timing)
        thinnest, size = self._thinnest(step), self.subject.space.scale.image_size
        watches = [self.subject.watch((one, size)) for one in (self.subject.space.full, thinnest)]
        before = [middle_round(watch) for watch in watches]
        least = structure.widths(thinnest.channels)
        with self.context.progress.task(
            "timing layers", len({(kind, least[name]) for name, kind in kinds.items()})
        ) as bar:
            times = time_layers(kinds, least, step, timing, bar.advance)
        after = [middle_round(watch) for watch in watches]  # a slow moment must not be what all is compared by
        whole, thin = (min(both, key=lambda one: one.median_ms) for both in zip(before, after, strict=True))
        self._refuse_below(thin.median_ms, whole.median_ms)
        ends = [
            (structure.widths(one.channels), ms)
            for one, ms in ((self.subject.space.full, whole.median_ms), (thinnest, thin.median_ms))
        ]
        self.context.progress.say(
            f"{find_backend(timing.backend).words}: {whole.median_ms:.3g} ms with all channels, {thin.median_ms:.3g} "
            f"with the fewest; widths go by steps of {step}."
        )
        fitted = times.fitted(ends[0], ends[1])
        return TimeResult(whole=Spread(**asdict(whole)), thinnest=Spread(**asdict(thin)), times=fitted)

    def _thinnest(self, step: int) -> Width:
        removal = self.removal(np.zeros(self.subject.scores.total), NetworkTimes(step=step, tables=[], layers={}))
        return removal.kept(removal.thinnest)

    def _refuse_below(self, least_ms: float, whole_ms: float) -> None:
        """Refuse latency limits that the thinnest network does not keep."""
        limits = [limits["latency_ms"] for limits, _ in self.targets() if "latency_ms" in limits]
        if limits and least_ms > MARGIN * min(limits):
            raise InfeasibleError(
                f"no architecture meets latency_ms <= {min(limits):.6g}. Reachable: latency_ms from {least_ms:.6g} to "
                f"{whole_ms:.6g} (timed here). Raise the limit, or lower --keep."
            )

    # --- scores ---

    @property
    def passes(self) -> int:  # type: ignore[override]
        """Passes a step of the search."""
        return self.score.passes(self.options) if isinstance(self.score, TrainedScore) else 1

    def _scored(self) -> Scored:
        """By one pass over given weights, by a training, or of another run."""
        if self.options.search_from is not None:
            return self._taken()
        if isinstance(self.score, PassScore) and self.subject.has_weights:
            network = self.make_network()
            self._save_scored(network)
            return Scored(scores=[], worth=self._passed(self.score, network))
        if not self.subject.has_weights:
            self.context.progress.say(f"{self.options.network} comes without weights: it is trained from scratch.")
        found = self._search()
        assert isinstance(found, Scored)
        return found

    def _passed(self, score: PassScore, network: nn.Module) -> list[float]:
        """What a score in one pass says of the channels of a trained network."""
        batches = self.subject.trainer.in_order(self.subject.space.scale.image_size, "train", LOOKED_AT)
        looked = Looked(network.eval(), self.subject.scores, batches, self.context.rng("random channels"))
        worth = np.asarray(score(looked), dtype=float)
        if worth.shape != (self.subject.scores.total,) or not np.isfinite(worth).all():
            raise RunError(f"expected {self.subject.scores.total} finite scores, got {worth.shape} with others.")
        return [float(one) for one in worth]

    def make_network(self) -> Network:
        """The whole network, with the weights it comes with or random ones by the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.context.rng("network").integers(2**31)))
            network = self.subject.given.network(self.subject.space)
        network.to(self.context.device.torch)
        return network.to(memory_format=self.layout)  # type: ignore[call-overload, no-any-return]

    @cached_property
    def layout(self) -> torch.memory_format:
        """Of the images in memory while weights are trained."""
        return torch.channels_last if takes_channels_last(self.subject.space.whole()) else torch.contiguous_format

    def make_alpha(self) -> ArchitectureParameters:
        """All scores are 1: the network as it is; or Taylor's, in units of their group's mean."""
        start = torch.ones(self.subject.scores.total)
        if isinstance(self.score, TrainedScore) and self.score.from_taylor:
            worth = self._passed(Taylor(), self.make_network())
            start = torch.tensor(in_units_of_groups(np.array(worth), self._sizes)).float()
        return ArchitectureParameters({"scores": start.to(self.context.device.torch)})

    @property
    def _sizes(self) -> list[int]:
        return [group.channels for group in self.subject.scores.groups]

    def move_alpha(self, parameters: list[Tensor]) -> Variable:
        """SGD as on the weights, and the pull to 0."""
        o = self.options
        sgd = torch.optim.SGD(parameters, lr=o.alpha_lr, momentum=o.w_momentum, weight_decay=o.alpha_weight_decay)
        schedule = make_schedule(o.alpha_schedule, o.alpha_lr, min(o.alpha_lr, o.alpha_lr_min))
        sizes = torch.tensor([group.channels for group in self.subject.scores.groups for _ in group.members])
        gain = (sizes / sizes.float().mean()).to(parameters[0].device)
        steps = o.search_epochs * max(1, len(self.data.train) // o.search_batch)
        learned = not self.shares and not self.context.configuration.limits
        pull = (SLIMMING_STEPS / steps if learned else 1.0) / (1 - o.w_momentum)
        return Shrinking(parameters, sgd, schedule, o.w_clip, USUAL_L1 if o.l1 is None else o.l1, gain, pull)

    def objective(self, network: nn.Module, alphas: Alphas, batch: Batch, position: Position) -> Tensor:
        """Cross entropy of the network with these scores; given weights keep the statistics of their norms."""
        images, labels = batch
        images = images.contiguous(memory_format=self.layout)
        network.train()
        if self.subject.has_weights:
            freeze_norms(network)
        return F.cross_entropy(self.subject.scores.logits(network, alphas["scores"], images), labels)

    @property
    def half_batch(self) -> int:
        """So that all scores have as many steps an epoch."""
        return self.options.search_batch // 2

    def problem(self) -> Problem:
        """Two halves, or all images at once for scores that know no halves."""
        found = super().problem()
        if not isinstance(self.score, TrainedScore) or self.score.whole_data:
            everything = np.arange(len(self.data.train))
            size = min(self.options.search_batch, len(everything))
            found.train = found.validation = self.batches(everything, size, 0, shuffled=True)
        return found

    def make_copies(self, network: nn.Module) -> list[WeightCopy]:
        """As many of the same start as the score wants."""
        o = self.options
        count = self.score.copies if isinstance(self.score, TrainedScore) else 1
        lr = o.w_lr or (GIVEN_LR if self.subject.has_weights else SCRATCH_LR)
        networks = [network, *(copy.deepcopy(network) for _ in range(count - 1))]
        return [self.copy_of(one, lr, o.w_lr_min, o.w_schedule) for one in networks]

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """The step of the score; of one in a pass the weights alone, from scratch."""
        if isinstance(self.score, TrainedScore):
            return self.score.step(problem, copies, self.options)
        return weights_step(problem, copies[0])

    def watch(self, epoch: int, metrics: dict[str, float], problem: Problem, copies: list[WeightCopy]) -> None:
        """Losses, the distance of the copies and how the scores lie, into the run's events."""
        values = problem.alpha.get(detached=True)["scores"].abs()
        found = {**metrics, "score_mean": float(values.mean()), "score_zero_share": float((values == 0).float().mean())}
        if len(copies) > 1:
            with torch.no_grad():
                found["distance"] = float(norm(sums(copies[1].weights, copies[0].weights, -1.0)))
        self.context.run.on_epoch("search")(epoch, found)

    def ended(self, problem: Problem, copies: list[WeightCopy]) -> Scored:
        """Save the trained weights and the scores."""
        network = middle(copies)
        self._save_scored(network)
        if isinstance(self.score, PassScore):
            return Scored(scores=[], worth=self._passed(self.score, network))
        values = problem.alpha.get(detached=True)["scores"].cpu()
        worth = in_units_of_groups(values.abs().numpy(), self._sizes)
        return Scored(scores=values.tolist(), worth=[float(one) for one in worth])

    def _save_scored(self, network: nn.Module) -> None:
        facts = {"network": self.options.network, "fingerprint": str(self.data.fingerprint)}
        state = {name: one.detach().cpu().contiguous() for name, one in network.state_dict().items()}
        save_weights(self.context.run.artifact(SCORED), state, facts)

    def _taken(self) -> Scored:
        """The scores of another run."""
        source = Run.open(Path(str(self.options.search_from)))
        write_atomic(self.context.run.artifact(SCORED), (source.folder / "artifacts" / SCORED).read_bytes())
        found = Scored.model_validate(source.stage_result("search"))
        if len(found.worth) != self.subject.scores.total:
            raise RunError(f"expected {self.subject.scores.total} scores in {source.folder}, got {len(found.worth)}.")
        return found

    # --- removal ---

    def _remove(self) -> RemoveResult:
        """Widths for every share and limit, timed as the file that is delivered."""
        times = self.result("time", TimeResult).times if self.options.timing else None
        removal = self.removal(self.result("search", Scored).worth, times)
        chosen = [self._thinned(removal, limits, asked) for limits, asked in self.targets()]
        return RemoveResult(chosen=chosen)

    def _thinned(self, removal: Removal, limits: dict[str, float], asked: dict[str, float]) -> Thinned:
        """The best widths within ``limits``; a latency limit is held by the clock, which may want a quicker one.

        Args:
            removal: what chooses.
            limits: by resource; none for the share that l1 has learned.
            asked: the same as it was given.
        """
        size, timed, steps = self.subject.space.scale.image_size, None, 0
        if not limits:
            found = self._learned(removal)
        elif "latency_ms" in limits:
            found, timed, steps = self._within_latency(removal, limits)
        else:
            found = removal.uniform(limits) if self.options.uniform else removal.best(limits)
        if timed is None and self.options.timing:
            timed = self.subject.clock.timed((found.width, size))
        worth = max(removal.value(removal.full), 1e-12)
        return Thinned(
            limits=limits,
            asked=asked,
            architecture=str(found.width),
            costs=dict(found.costs),
            value=found.value / worth,
            gap=found.gap / worth,
            latency=timed,
            steps=steps,
        )

    def _within_latency(self, removal: Removal, limits: dict[str, float]) -> tuple[Chosen, Timed, int]:
        """The best widths that the clock holds to the limit, and how often quicker ones had to be taken.

        Args:
            removal: what chooses.
            limits: by resource, one of them on ``latency_ms``.
        """
        clock, size = self.subject.clock, self.subject.space.scale.image_size
        solve = removal.uniform if self.options.uniform else removal.best
        least = removal.costs(removal.thinnest)["latency_ms"]
        return clock.step_down(solve, lambda one: (one.width, size), limits, least)

    def _learned(self, removal: Removal) -> Chosen:
        """What is left without the channels of score 0, widths rounded up to steps."""
        values = np.array(self.result("search", Scored).scores)
        alive = [int((self.subject.scores.of_group(group, values) != 0).sum()) for group in self.subject.scores.groups]
        shape = tuple(
            next(k for k in options if k >= min(n, options[-1]))
            for options, n in zip(removal.options, alive, strict=True)
        )
        zeros, gone = int((values == 0).sum()), sum(self._sizes) - sum(shape)
        self.context.progress.say(f"{zeros} of {self.subject.scores.total} channels have score 0; {gone} go.")
        value = removal.value(shape)
        return Chosen(removal.kept(shape), shape, value, removal.costs(shape), value, 0.0)

    # --- fine-tuning ---

    def _tune(self) -> TunedNetworks:
        """Every choice, the whole network, and that with smaller images, each for as many steps."""
        chosen = self.result("remove", RemoveResult).chosen
        names = [self.subject.tuned(self.subject.space.parse(one.architecture)).name for one in chosen]
        whole, smaller = None, list[tuple[int, str] | None]()
        if self.options.compare:
            whole = self.subject.tuned(self.subject.space.full).name
            smaller = [self._smaller(one) for one in chosen]
        if self.subject.int8:
            known = networks_of(self.context.run)
            for name in dict.fromkeys(names):
                self.subject.trainer.in_int8(known[name])
        kept = {name: self.subject.kept(name) for name in dict.fromkeys(names)}
        others = {UNPRUNED: whole} if whole else {}
        others |= {one[1]: one[1] for one in smaller if one is not None}
        kept |= {name: self.subject.kept(name, file) for file, name in others.items() if name not in kept}
        return TunedNetworks(chosen=names, whole=whole, smaller=smaller, kept=kept)

    def _smaller(self, one: Thinned) -> tuple[int, str] | None:
        """The whole network with images so small that it is as quick as a thinned one; None where there are none."""
        if not self.subject.has_weights or one.latency is None:
            return None
        own = self.subject.space.scale.image_size
        for size in range(
            own - own % SIZE_STEP - (0 if own % SIZE_STEP else SIZE_STEP), SMALLEST_IMAGES - 1, -SIZE_STEP
        ):
            if not self.subject.takes(size):
                return None
            if self.subject.clock.timed((self.subject.space.full, size)).median_ms <= one.latency.median_ms:
                return size, self.subject.tuned(self.subject.space.full, size).name
        return None

    # --- the answer ---

    def _found(self) -> Found:
        return Telling(self.subject, self.simple).found()


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{one:.3f}" for one in values)


@torch.no_grad()
def middle(copies: list[WeightCopy]) -> nn.Module:
    """The network half-way between the copies, running statistics included; of one copy itself."""
    found = copy.deepcopy(copies[0].network)
    for one in copies[1:]:
        for mine, other in zip(found.state_dict().values(), one.network.state_dict().values(), strict=True):
            if mine.is_floating_point():
                mine.lerp_(other, 1 / 2)
    return found
