"""Networks of PyTorch that `tools.onnx_files` exports and measures: it imports this module where
torch is installed. They are small, with the operators of the large ones: residual and depthwise
convolutions, an encoder and a decoder of images, recurrent layers, attention with and without a
causal mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_Module: Any = nn.Module


def networks() -> Iterator[tuple[str, Any, Any]]:
    """The name of each network, the network, and an example of its input."""
    torch.manual_seed(0)
    images = torch.randn(1, 3, 64, 64)
    yield "MobileNet-v2 blocks", _pooled(_mobile()), torch.randn(1, 3, 96, 96)
    yield "plain blocks of 32 to 128 channels", _pooled(_plain()), images
    yield "ResNet blocks", _pooled([nn.Conv2d(3, 32, 3, 1, 1), *_residuals()]), images
    yield "U-Net", UNet(), images
    yield "LSTM of two layers", Recurrent(nn.LSTM(32, 64, 2, batch_first=True)), _sequence()
    yield "GRU, both ways", Recurrent(nn.GRU(32, 64, 1, True, True, 0.0, True)), _sequence()
    yield "ViT", ViT(), images
    yield "GPT, causal", GPT(), torch.randint(0, 65, (1, 32))


def _sequence() -> Any:
    return torch.randn(1, 40, 32)


def _pooled(layers: list[Any]) -> Any:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))


def _mobile() -> list[Any]:
    layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6()]
    for n, m, stride in ((16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1), (32, 64, 2)):
        wide = 6 * n
        layers += [
            nn.Conv2d(n, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, m, 1, bias=False), nn.BatchNorm2d(m),
        ]  # fmt: skip
    return layers


_WIDTHS = (32, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2)


def _plain() -> list[Any]:
    layers = [nn.Conv2d(3, 32, 3, 1, 1)]
    for n, m, stride in _WIDTHS:
        layers += [
            nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU(),
        ]  # fmt: skip
    return layers


def _residuals() -> list[Any]:
    return [Residual(n, m, stride) for n, m, stride in _WIDTHS]


class Residual(_Module):  # type: ignore[misc]
    """Two convolutions around which the input passes."""

    def __init__(self, n: int, m: int, stride: int):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU(),
            nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m),
        )  # fmt: skip
        plain = n == m and stride == 1
        self.short = nn.Identity() if plain else nn.Conv2d(n, m, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        """relu(inner(x) + short(x))."""
        return torch.relu(self.inner(x) + self.short(x))


class UNet(_Module):  # type: ignore[misc]
    """Two levels down and up, with the levels' outputs beside what comes up."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.down = nn.ModuleList([_double(3, width), _double(width, 2 * width)])
        self.bottom = _double(2 * width, 4 * width)
        self.up = nn.ModuleList(
            [
                nn.ConvTranspose2d(4 * width, 2 * width, 2, 2),
                nn.ConvTranspose2d(2 * width, width, 2, 2),
            ]
        )
        self.after = nn.ModuleList([_double(4 * width, 2 * width), _double(2 * width, width)])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Any) -> Any:
        """Scores of two classes for each pixel."""
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, after in zip(self.up, self.after, strict=True):
            x = after(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


def _double(n: int, m: int) -> Any:
    first = nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU()
    return nn.Sequential(*first, nn.Conv2d(m, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU())


class Recurrent(_Module):  # type: ignore[misc]
    """Scores of ten classes from the last step of a recurrent layer."""

    def __init__(self, layer: Any):
        super().__init__()
        self.layer = layer
        self.last = nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), 10)

    def forward(self, x: Any) -> Any:
        """The scores."""
        return self.last(self.layer(x)[0][:, -1])


class Block(_Module):  # type: ignore[misc]
    """A layer of a transformer with the norms before; causal: attention to earlier places only."""

    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        """Attention, then the layers of each place, both around the input."""
        batch, length, width = x.shape
        each = self.mixed(self.norms[0](x)).reshape(batch, length, 3, self.heads, -1)
        query, key, value = each.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        if self.causal:
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.inner(self.norms[1](x))


class ViT(_Module):  # type: ignore[misc]
    """Patches of an image through a transformer."""

    def __init__(self, width: int = 96):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.places = nn.Parameter(torch.randn(1, 64, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, 4, False) for _ in range(3)])
        self.last = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        """Scores of ten classes."""
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.last(self.blocks(x).mean(1))


class GPT(_Module):  # type: ignore[misc]
    """Tokens through a causal transformer."""

    def __init__(self, tokens: int = 65, width: int = 96):
        super().__init__()
        self.table, self.places = nn.Embedding(tokens, width), nn.Embedding(32, width)
        self.blocks = nn.Sequential(*[Block(width, 4, True) for _ in range(3)])
        self.last = nn.Linear(width, tokens)

    def forward(self, x: Any) -> Any:
        """Scores of the next token at each place."""
        return self.last(self.blocks(self.table(x) + self.places(torch.arange(x.shape[1]))))
