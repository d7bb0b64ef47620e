"""The training loop of PyTorch in `train_step`, which the sides of transformers share."""

from collections.abc import Mapping, Sequence

import torch
import work


def serve(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Mapping[str, torch.Tensor]],
    size: Mapping[str, object],
) -> None:
    """Serves the steps of a model: forward, backward, clip by the global norm, update."""
    forward = torch.compile(model) if size["compile"] else model
    done = 0

    def run(steps: int) -> float:
        nonlocal done
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=size["precision"] == "bfloat16"):
                loss = forward(**batches[done % len(batches)]).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            done += 1
        return loss.item()

    work.serve(run)
