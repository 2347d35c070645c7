"""How networks and ensembles stand up to adversarial images, by the Adversarial Robustness Toolbox (thesis, table 5.4).

The attacker knows one member; the ensemble answers with all. Each round attacks another member, so that an ensemble of
n has n rounds. Images are pixels in [0, 1] before normalisation, and so are the attacks' distances:

    fgsm         one step of eps = .01 along the gradient's sign
    pgd-40       40 steps of .008 within eps = .01 (maximum norm)
    cw           Carlini and Wagner, L2: confidence 0, 3 searches of 50 steps at rate .01
    autoattack   AutoAttack: two adaptive PGD of 100 steps, DeepFool, the square attack; eps = .01 (maximum norm)

The toolbox multiplies or divides c of ``cw`` by ten when a search fails; from .1 it tries .1, 1 and 10, the upper part
of the thesis' range (.001 to 10).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.data import Preprocessing
from archwright.ensembles import Ensemble
from archwright.errors import InputError, missing_extra, unknown_name

EPS = 0.01
BATCH = 128
QUERIES = 1000
"""Of AutoAttack's square attack; 5,000 in its paper."""
ATTACKS = ("fgsm", "pgd-40", "cw", "autoattack")


class Unnormalised(nn.Module):
    """A network that takes pixels in [0, 1] instead of normalised images."""

    def __init__(self, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.network, self.preprocessing = network, preprocessing

    def forward(self, unit: Tensor) -> Tensor:
        """Pixels (B, C, H, W) to logits (B, classes)."""
        logits: Tensor = self.network(self.preprocessing.standardise(unit))
        return logits


def adversarial(
    network: nn.Module, images: Tensor, labels: Tensor, classes: int, attack: str, *, eps: float = EPS, seed: int = 0
) -> Tensor:
    """Images (B, C, H, W) in [0, 1] changed so that ``network``, from pixels to logits, errs.

    Args:
        network: what is attacked; it is put into evaluation mode.
        images: pixels.
        labels: true classes, (B,).
        classes: how many there are.
        attack: one of :data:`ATTACKS`.
        eps: largest change of a pixel; ``cw`` has none.
        seed: of attacks that draw.
    """
    if attack not in ATTACKS:
        raise unknown_name("attack", attack, ATTACKS)
    if not len(images) or not torch.isfinite(images).all() or images.min() < 0 or images.max() > 1:
        raise InputError(
            "one or more images with pixels in [0, 1]", _range(images), "Attack them before normalisation."
        )
    if not 0 < eps <= 1:
        raise InputError("a largest change eps in (0, 1]", str(eps))
    require_toolbox()
    from art.estimators.classification import PyTorchClassifier

    device = next(iter(network.parameters())).device
    estimator = PyTorchClassifier(
        network.eval(),
        nn.CrossEntropyLoss(),
        tuple(images.shape[1:]),
        classes,
        clip_values=(0.0, 1.0),
        device_type="cpu" if device.type == "cpu" else "gpu",
    )
    truth = np.eye(classes, dtype=np.float32)[labels.cpu().numpy()]
    with _seeded(seed):
        found = _make(attack, estimator, eps).generate(x=images.cpu().numpy().astype(np.float32), y=truth)
    return torch.from_numpy(np.asarray(found, dtype=np.float32))


def require_toolbox() -> None:
    """Refuse to go on without the optional package; a study says so before it trains what it would attack."""
    try:
        import art.estimators.classification  # noqa: F401
    except ImportError as error:
        raise missing_extra("adversarial-robustness-toolbox", "robustness", "attacks") from error


def _range(images: Tensor) -> str:
    return f"pixels from {float(images.min()):.3g} to {float(images.max()):.3g}" if len(images) else "none"


def _make(attack: str, estimator: Any, eps: float) -> Any:
    from art.attacks import evasion

    bounded: dict[str, Any] = {"norm": np.inf, "eps": eps, "batch_size": BATCH}
    if attack == "fgsm":
        return evasion.FastGradientMethod(estimator, **bounded)
    if attack == "pgd-40":
        return evasion.ProjectedGradientDescent(estimator, **bounded, eps_step=0.8 * eps, max_iter=40, verbose=False)
    if attack == "autoattack":
        return evasion.AutoAttack(estimator, **bounded, eps_step=0.1 * eps, attacks=_four(estimator, bounded))
    steps: dict[str, Any] = {"learning_rate": 0.01, "binary_search_steps": 3, "max_iter": 50, "initial_const": 0.1}
    return evasion.CarliniL2Method(estimator, confidence=0.0, **steps, batch_size=BATCH, verbose=False)


def _four(estimator: Any, bounded: dict[str, Any]) -> list[Any]:
    """The parts of AutoAttack, silent; the ratio of logits needs three classes."""
    from art.attacks import evasion

    losses = ["cross_entropy", "difference_logits_ratio"][: 2 if estimator.nb_classes > 2 else 1]
    steps: dict[str, Any] = {"eps_step": 0.1 * bounded["eps"], "max_iter": 100, "nb_random_init": 1, "verbose": False}
    found = [evasion.AutoProjectedGradientDescent(estimator, **bounded, **steps, loss_type=loss) for loss in losses]
    grads = min(10, estimator.nb_classes)
    found.append(
        evasion.DeepFool(estimator, max_iter=100, epsilon=1e-3, nb_grads=grads, batch_size=BATCH, verbose=False)
    )
    found.append(evasion.SquareAttack(estimator, **bounded, max_iter=QUERIES, nb_restarts=1, verbose=False))
    return found


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The toolbox draws from global generators: seed them, and put them back."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


@dataclass(frozen=True)
class Defence:
    """Accuracies in percent under one attack, a number a round.

    Attributes:
        clean: of the ensemble on the images as they were.
        attacked: of the member that was attacked.
        defended: of the ensemble on the same changed images.
    """

    attack: str
    clean: float
    attacked: tuple[float, ...]
    defended: tuple[float, ...]

    def summary(self) -> Mapping[str, float]:
        """Means over the rounds."""
        return {"clean": self.clean, "attack": float(np.mean(self.attacked)), "defence": float(np.mean(self.defended))}


def attack_and_defend(
    ensemble: Ensemble, images: Tensor, labels: Tensor, attack: str, *, eps: float = EPS, seed: int = 0
) -> Defence:
    """Attack each member in turn, and let the whole ensemble answer.

    Args:
        ensemble: members that classify.
        images: pixels in [0, 1], (B, C, H, W).
        labels: true classes, (B,).
        attack: one of :data:`ATTACKS`.
        eps: largest change of a pixel.
        seed: of attacks that draw.
    """
    how = ensemble.preprocessing
    together = Unnormalised(ensemble.network, how)
    attacked, defended = [], []
    for number, member in enumerate(ensemble.members):
        alone = Unnormalised(member.network, how)
        changed = adversarial(alone, images, labels, len(how.class_names), attack, eps=eps, seed=seed + number)
        attacked.append(_accuracy(alone, changed, labels))
        defended.append(_accuracy(together, changed, labels))
    return Defence(attack, _accuracy(together, images, labels), tuple(attacked), tuple(defended))


@torch.no_grad()
def _accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    network.eval()
    device = next(iter(network.parameters())).device
    found: list[NDArray[np.bool_]] = []
    for start in range(0, len(images), BATCH):
        answer = network(images[start : start + BATCH].to(device)).argmax(dim=1).cpu()
        found.append((answer == labels[start : start + BATCH].cpu()).numpy())
    return 100 * float(np.concatenate(found).mean())
