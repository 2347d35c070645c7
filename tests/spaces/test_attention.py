"""Attention whose heads can go is torch's attention, and removing a head is removing what it says."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from archwright.spaces.attention import HeadedAttention, with_heads


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [None, "causal", "padding"])
def test_it_answers_as_torchs_module_does(bias: bool, masked: str | None) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).eval()
    if bias:
        nn.init.normal_(theirs.in_proj_bias)
    x = torch.randn(2, 5, 12)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if masked == "causal" else None
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]) if masked == "padding" else None
    expected, weights = theirs(x, x, x, key_padding_mask=padding, attn_mask=mask)
    found, own = HeadedAttention.of(theirs)(x, x, x, key_padding_mask=padding, attn_mask=mask)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(own, weights, atol=1e-6)


def test_a_head_that_is_removed_is_one_that_is_not_read() -> None:
    torch.manual_seed(0)
    attention = HeadedAttention(12, 3, 4, bias=True, dropout=0.0).eval()
    x = torch.randn(2, 5, 12)
    silent = HeadedAttention(12, 3, 4, bias=True, dropout=0.0).eval()
    silent.load_state_dict(attention.state_dict())
    with torch.no_grad():
        silent.out.weight[:, 4:8] = 0
    attention.keep([0, 2])
    assert attention.heads == 2
    assert attention.query.weight.shape == (8, 12)
    assert torch.allclose(attention(x, x, x)[0], silent(x, x, x)[0], atol=1e-6)


def test_encoder_layers_keep_their_answers_and_odd_modules_are_left_alone() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    odd = nn.MultiheadAttention(8, 2, kdim=4, vdim=4)
    both = nn.ModuleList([layer, odd])
    x = torch.randn(2, 3, 8)
    expected = layer(x)
    with_heads(both)
    assert isinstance(layer.self_attn, HeadedAttention)
    assert both[1] is odd
    assert torch.allclose(layer(x), expected, atol=1e-6)
