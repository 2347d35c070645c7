import math

import pytest
import torch

from archwright.training.losses import classification_loss, distillation_loss

LOGITS = torch.tensor([[math.log(6.0), math.log(3.0), 0.0]])  # probabilities .6 .3 .1


def test_label_smoothing_by_hand():
    loss = classification_loss(LOGITS, torch.tensor([1]), label_smoothing=0.3)
    expected = -(0.1 * math.log(0.6) + 0.8 * math.log(0.3) + 0.1 * math.log(0.1))
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_distillation_by_hand():
    # at T = 2 probabilities go with their square roots
    teacher = torch.tensor([[0.0, math.log(4.0), math.log(4.0)]])
    student_raw, teacher_raw = [math.sqrt(6), math.sqrt(3), 1.0], [1.0, 2.0, 2.0]
    q = [value / sum(student_raw) for value in student_raw]
    p = [value / sum(teacher_raw) for value in teacher_raw]
    divergence = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert distillation_loss(LOGITS, teacher, 2.0).item() == pytest.approx(4 * divergence, rel=1e-5)
    mixed = classification_loss(
        LOGITS, torch.tensor([0]), teacher_logits=teacher, distill_weight=0.25, distill_temperature=2.0
    )
    assert mixed.item() == pytest.approx(0.75 * -math.log(0.6) + 0.25 * 4 * divergence, rel=1e-5)


def test_distillation_is_a_mean_over_images_and_zero_for_equal_answers():
    student, teacher = torch.randn(5, 4), torch.randn(5, 4)
    single = [distillation_loss(student[i : i + 1], teacher[i : i + 1], 3.0).item() for i in range(5)]
    assert distillation_loss(student, teacher, 3.0).item() == pytest.approx(sum(single) / 5, rel=1e-5)
    assert distillation_loss(student, student, 3.0).item() == pytest.approx(0, abs=1e-6)
