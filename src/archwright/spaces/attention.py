"""Self-attention whose heads can be removed: what ``nn.MultiheadAttention`` does, with layers that can be cut.

torch's own module ties the width of its heads to that of its input, so that a head cannot go. Networks that are to be
thinned get this one in its place, with the same weights and the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn


class HeadedAttention(nn.Module):
    """Queries, keys and values of some heads, and the layer that reads what they found.

    Args:
        width: of the tokens.
        heads: how many.
        head_width: numbers a head.
        bias: whether the layers have one.
        dropout: of the attention's weights, in training.
    """

    batch_first = True
    in_proj_bias = None
    """What torch's encoder layers look at before they take a path of their own, which would pass this module by."""

    def __init__(self, width: int, heads: int, head_width: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_width, self.dropout = heads, head_width, dropout
        self.query, self.key, self.value = (nn.Linear(width, heads * head_width, bias) for _ in range(3))
        self.out = nn.Linear(heads * head_width, width, bias)

    @classmethod
    def of(cls, module: nn.MultiheadAttention) -> Self:
        """The same function as torch's module has."""
        width, heads = module.embed_dim, module.num_heads
        bias = module.in_proj_bias is not None
        found = cls(width, heads, width // heads, bias, module.dropout)
        with torch.no_grad():
            for number, layer in enumerate((found.query, found.key, found.value)):
                rows = slice(number * width, (number + 1) * width)
                layer.weight.copy_(module.in_proj_weight[rows])
                if bias:
                    layer.bias.copy_(module.in_proj_bias[rows])
            found.out.weight.copy_(module.out_proj.weight)
            if bias:
                found.out.bias.copy_(module.out_proj.bias)
        return found.train(module.training)

    def keep(self, heads: Sequence[int]) -> None:
        """Remove all heads but these, in place."""
        rows = torch.cat([torch.arange(one * self.head_width, (one + 1) * self.head_width) for one in heads])
        for layer in (self.query, self.key, self.value):
            layer.weight = nn.Parameter(layer.weight.detach()[rows].clone())
            layer.out_features = len(rows)
            if layer.bias is not None:
                layer.bias = nn.Parameter(layer.bias.detach()[rows].clone())
        self.out.weight = nn.Parameter(self.out.weight.detach()[:, rows].clone())
        self.out.in_features, self.heads = len(rows), len(heads)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As torch's module, batch first: tokens (B, N, width) to the same, and weights where they are asked for.

        Args:
            query: tokens that ask, (B, N, width).
            key: tokens that are asked, (B, M, width); ``value`` what they say.
            value: (B, M, width).
            key_padding_mask: (B, M), true where a token does not count, or numbers that are added.
            need_weights: whether weights are returned.
            attn_mask: (N, M), true where a token may not look, or numbers that are added.
            average_attn_weights: mean of the heads' weights, (B, N, M); else (B, heads, N, M).
            is_causal: only a hint in torch's module; the mask says it.
        """
        q, k, v = (self._split(layer(x)) for layer, x in ((self.query, query), (self.key, key), (self.value, value)))
        scores = q @ k.transpose(-2, -1) * self.head_width**-0.5
        for mask, shape in ((attn_mask, (1, 1, -1, key.shape[1])), (key_padding_mask, (-1, 1, 1, key.shape[1]))):
            if mask is not None:
                placed = mask.view(shape)
                scores = scores.masked_fill(placed, -torch.inf) if mask.dtype == torch.bool else scores + placed
        weights = scores.softmax(-1)
        dropped = nn.functional.dropout(weights, self.dropout, self.training)
        found = self.out((dropped @ v).transpose(1, 2).flatten(2))
        if not need_weights:
            return found, None
        return found, weights.mean(1) if average_attn_weights else weights

    def _split(self, x: Tensor) -> Tensor:
        """(B, N, heads * head_width) to (B, heads, N, head_width)."""
        return x.view(*x.shape[:2], self.heads, self.head_width).transpose(1, 2)


def with_heads(network: nn.Module) -> nn.Module:
    """``network`` with a :class:`HeadedAttention` for every module of torch's that it can stand for, in place."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.MultiheadAttention) and _usual(child):
                setattr(module, name, HeadedAttention.of(child))
    return network


def _usual(module: nn.MultiheadAttention) -> bool:
    """Whether it attends as the papers have it: tokens of one width, images first, nothing added."""
    same = module.in_proj_weight is not None and module.bias_k is None
    return same and bool(module.batch_first) and not module.add_zero_attn
