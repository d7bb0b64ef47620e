"""A BERT written by hand in PyTorch, as a side of `benchmarks.train_step`.

It uses everything that makes a step fast in PyTorch: one projection to queries, keys and values,
SDPA, the masked LM only at the predicted positions, and fused AdamW. Losses, dropout, clipping and
update equal those of the other sides.

Shapes: B batch, T length, D hidden, N heads, P predictions.
"""

from collections.abc import Callable, Mapping

import server
import steps
import torch
from torch import Tensor, nn
from torch.nn import functional

_DROPOUT = 0.1
_EPSILON = 1e-12  # epsilon of the norms


class Block(nn.Module):
    """A layer of the encoder, with norms after the residual sums (post-norm)."""

    def __init__(self, hidden: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, _EPSILON)
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.norm = nn.LayerNorm(hidden, _EPSILON)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the states after the layer, [B, T, D]; `mask` is bool [B, 1, 1, T]."""
        batch, length, hidden = x.shape
        joined = self.query_key_value(x).view(batch, length, 3, self.heads, -1)
        query, key, value = joined.permute(2, 0, 3, 1, 4)  # [B, N, T, D / N] each
        context = functional.scaled_dot_product_attention(query, key, value, mask, _DROPOUT)
        context = context.transpose(1, 2).reshape(batch, length, hidden)
        x = self.attention_norm(x + self.dropout(self.output(context)))
        inner = functional.gelu(self.up(x), approximate="tanh")
        return self.norm(x + self.dropout(self.down(inner)))


class Bert(nn.Module):
    """The encoder with the heads of masked LM and next sentence; returns the loss."""

    def __init__(self, size: Mapping[str, int]):
        super().__init__()
        hidden, vocab = size["hidden"], size["vocab"]
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(512, hidden)
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, _EPSILON)
        self.dropout = nn.Dropout(_DROPOUT)
        self.blocks = nn.ModuleList(
            Block(hidden, size["heads"], size["intermediate"]) for _ in range(size["layers"])
        )
        self.pooler = nn.Linear(hidden, hidden)
        self.next_sentence = nn.Linear(hidden, 2)
        self.transform = nn.Linear(hidden, hidden)
        self.transform_norm = nn.LayerNorm(hidden, _EPSILON)
        self.bias = nn.Parameter(torch.zeros(vocab))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the sum of both losses, a scalar."""
        ids = batch["token_ids"]
        embedded = self.tokens(ids) + self.segments(batch["segment_ids"])
        x = self.dropout(self.norm(embedded + self.positions.weight[: ids.shape[1]]))
        for block in self.blocks:
            x = block(x, batch["mask"])
        pooled = self.dropout(torch.tanh(self.pooler(x[:, 0])))
        related = functional.cross_entropy(
            self.next_sentence(pooled).float(), batch["next_sentence_label"]
        )
        places = batch["masked_positions"].unsqueeze(-1).expand(-1, -1, x.shape[-1])
        masked = x.gather(1, places).flatten(0, 1)  # [B P, D]
        masked = functional.gelu(self.transform(masked), approximate="tanh")
        logits = functional.linear(self.transform_norm(masked), self.tokens.weight, self.bias)
        return related + functional.cross_entropy(logits.float(), batch["masked_ids"].flatten())


def step(size: dict) -> None:
    """Serves the steps of `Bert`."""
    torch.manual_seed(0)
    model = Bert(size).train()
    serve(model, adamw(model), _batch, lambda forward, batch: forward(batch), size)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Returns fused AdamW with weight decay only for matrices."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        lr=1e-6,
        eps=1e-6,
        fused=True,
    )


def serve(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch_of: Callable[[Mapping], Mapping[str, Tensor]],
    loss_of: Callable[[Callable, Mapping[str, Tensor]], Tensor],
    size: Mapping[str, object],
) -> None:
    """Serves the steps of a model: forward, backward, clip by the global norm, update.

    Args:
      model: the model.
      optimizer: its optimizer.
      batch_of: converts a batch of `steps` to tensors.
      loss_of: calls the model, which may be compiled, and returns the loss.
      size: the sizes of the benchmark.
    """
    batches = [batch_of(batch) for batch in steps.batches(size)]
    forward = torch.compile(model) if size["compile"] else model
    done = 0

    def run(count: int) -> float:
        nonlocal done
        for _ in range(count):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=size["precision"] == "bfloat16"):
                loss = loss_of(forward, batches[done % len(batches)])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            done += 1
        return loss.item()

    steps.serve(run)


def _batch(batch: Mapping) -> dict[str, Tensor]:
    tensors = {name: torch.from_numpy(value.copy()).long() for name, value in batch.items()}
    mask = torch.ones_like(tensors["token_ids"], dtype=torch.bool)
    return {**tensors, "mask": mask[:, None, None]}


if __name__ == "__main__":
    server.main(step)
