"""Small networks of every structure that units live in, with data."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


def seeded(build: type[nn.Module], *arguments: int) -> nn.Module:
    """A network with random weights, statistics and all, in evaluation mode and double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(*arguments).double().eval()
        for name, tensor in model.state_dict().items():
            if "running_var" in name:
                tensor.uniform_(0.5, 2.0)
            elif "norm" in name or "running" in name or "bn" in name:
                tensor.copy_(torch.randn(tensor.shape) * 0.3 + (0.0 if tensor.dtype == torch.long else 0.7))
    return model


def images(count: int = 40, classes: int = 4, size: int = 8) -> tuple[Tensor, Tensor]:
    """Random images and labels."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 3, size, size, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(classes, (count,), generator=generator)


def vectors(count: int = 60, width: int = 6, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Random vectors and labels."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(classes, (count,), generator=generator)


class Perceptron(nn.Module):
    """Two hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 12), nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.gelu(self.second(F.relu(self.first(x)))))


class Residual(nn.Module):
    """Convolutions with normalisation, a shortcut, pooling, flattening and a grouped convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.inner, self.inner_bn = nn.Conv2d(8, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.back, self.back_bn = nn.Conv2d(6, 8, 1, bias=False), nn.BatchNorm2d(8)
        self.group, self.norm = nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.GroupNorm(2, 10)
        self.mix, self.head = nn.Conv2d(8, 10, 1), nn.Linear(10 * 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.stem(x)))
        x = F.relu(x + self.back_bn(self.back(F.relu(self.inner_bn(self.inner(x))))))
        x = F.max_pool2d(F.silu(self.norm(self.mix(self.group(x)))), 4)
        return self.head(x.flatten(1))


class Separable(nn.Module):
    """Depthwise and pointwise convolutions, with padding by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.depth, self.depth_bn = nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8)
        self.point, self.head = nn.Conv2d(8, 12, 1), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.bn(self.stem(F.pad(x, (0, 1, 0, 1)))))
        x = F.relu6(self.depth_bn(self.depth(x)))
        return self.head(F.relu(self.point(x)).mean((-2, -1)))


class UNet(nn.Module):
    """Down, up, and both joined."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 10, 3, padding=1)
        self.up, self.out = nn.Conv2d(10, 6, 3, padding=1), nn.Conv2d(8 + 6, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = F.relu(self.down(x))
        low = F.relu(self.low(F.avg_pool2d(high, 2)))
        up = F.relu(self.up(F.interpolate(low, scale_factor=2)))
        return self.out(torch.cat([high, up], 1))


class OwnAttention(nn.Module):
    """Attention as people write it: one packed layer, a head count of its own, queries that share keys."""

    def __init__(self, width: int = 12, heads: int = 6) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, 2
        self.qkv, self.proj = nn.Linear(width, 3 * heads * 2), nn.Linear(heads * 2, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        packed = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = packed.unbind(0)
        weights = (q @ k.transpose(-2, -1) * self.head_dim**-0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class VisionTransformer(nn.Module):
    """Patches, positions, attention of one's own, a gated block and a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 4, stride=4)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 12)), nn.Parameter(torch.randn(1, 5, 12))
        self.norm1, self.norm2, self.attention = nn.LayerNorm(12), nn.LayerNorm(12), OwnAttention()
        self.gate, self.up, self.down = nn.Linear(12, 10), nn.Linear(12, 10), nn.Linear(10, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return self.head((x + self.down(F.silu(self.gate(y)) * self.up(y)))[:, 0])


class SharedKeys(nn.Module):
    """Grouped-query attention: four query heads on two of keys and values, by repetition."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.q, self.k, self.v = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.o, self.norm, self.head = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.enter(x))
        q, k, v = (layer(x).unflatten(-1, (-1, 2)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        k, v = (y[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for y in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head((x + self.o(mixed.transpose(1, 2).flatten(2))).mean(1))


class Encoder(nn.Module):
    """PyTorch's own transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 4, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x).mean(1))


class Padded(nn.Module):
    """PyTorch's own transformer on texts of unequal length."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16, padding_idx=0)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == 0)[:, 0])


class Recurrent(nn.Module):
    """A recurrent layer between linear ones."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.lstm = nn.Linear(6, 8), nn.LSTM(8, 8, batch_first=True)
        self.middle, self.head = nn.Linear(8, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.middle(self.lstm(self.enter(x))[0][:, -1])))


class Tied(nn.Module):
    """Two layers that share a weight, before one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third, self.head = (nn.Linear(6, 6) for _ in range(4))
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.third(F.relu(self.second(F.relu(self.first(x)))))))


class HardCoded(nn.Module):
    """A layer whose width stands in the code, and one whose does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.second(F.relu(self.first(x)).view(-1, 8))))


def sequences(count: int = 60, width: int = 6, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Random sequences and labels."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 5, width, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(classes, (count,), generator=generator)


def texts(count: int = 60, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Random texts, half of them padded, and labels."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 30, (count, 8), generator=generator)
    tokens[: count // 2, 5:] = 0
    return tokens, torch.randint(classes, (count,), generator=generator)
