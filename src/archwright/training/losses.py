"""What plain training minimises."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def distillation_loss(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher_T || student_T), mean over images.

    T^2 keeps the gradient's size independent of the temperature.

    Args:
        logits: of the student, (B, classes).
        teacher_logits: (B, classes).
        temperature: T, which divides both.
    """
    student = F.log_softmax(logits.float() / temperature, dim=1)
    teacher = F.log_softmax(teacher_logits.float() / temperature, dim=1)
    return temperature**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def classification_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    label_smoothing: float = 0.0,
    teacher_logits: Tensor | None = None,
    distill_weight: float = 0.0,
    distill_temperature: float = 1.0,
) -> Tensor:
    """(1 - w) CE + w KD: cross entropy with smoothed labels and, if given, a teacher's answer.

    Args:
        logits: (B, classes).
        labels: (B,).
        label_smoothing: share of a label that is spread over all classes.
        teacher_logits: (B, classes); None for no teacher.
        distill_weight: w, of the teacher's answer.
        distill_temperature: T of :func:`distillation_loss`.
    """
    loss = F.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)
    if teacher_logits is None:
        return loss
    soft = distillation_loss(logits, teacher_logits, distill_temperature)
    return (1 - distill_weight) * loss + distill_weight * soft
