"""Makes tests/golden/span_answer.npz: the heads for questions and spans of transformers' models.

Of a tiny BertForQuestionAnswering (`bert/…`) and a tiny XLNetForQuestionAnswering (`xlnet/…`) with
random weights: the head's weights, the last states of the encoder on random rows, the logits and
the losses. BERT's are of rows of their own length without padding, whose losses are then averaged,
for transformers counts padding among the candidates. XLNet's `loss` is that of starts and ends;
that of the answerability is `null_logits`' own, for transformers' forward pass in training reads
the right start there, which the release does not.

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_span_answer_golden.py [FILE]
"""

import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

LENGTHS = [11, 7, 9]
# Where the context begins and how long it is; the first and the last token of the answer, 0 = none.
CONTEXTS = [(4, 6), (3, 3), (2, 6)]
ANSWERS = [(5, 8), (3, 3), (0, 0)]


def random_weights(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return model.eval()


def head(model, encoder):
    named = {k: v.numpy() for k, v in model.state_dict().items() if not k.startswith(encoder)}
    return {f"weight/{name}": value for name, value in named.items()}


def bert():
    sizes = {"hidden_size": 18, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = transformers.BertConfig(vocab_size=61, intermediate_size=23, **sizes)
    model = random_weights(transformers.BertForQuestionAnswering(config))
    width = max(LENGTHS)
    result = {
        "states": np.zeros((3, width, 18), np.float32),
        "start_logits": np.zeros((3, width), np.float32),
        "end_logits": np.zeros((3, width), np.float32),
        "loss": np.zeros(3, np.float32),
    }
    for i, (length, (start, end)) in enumerate(zip(LENGTHS, ANSWERS, strict=True)):
        ids = torch.randint(5, 61, (1, length))
        positions = {"start_positions": torch.tensor([start]), "end_positions": torch.tensor([end])}
        actual = model(ids, **positions, output_hidden_states=True)
        result["states"][i, :length] = actual.hidden_states[-1][0].numpy()
        result["start_logits"][i, :length] = actual.start_logits[0].numpy()
        result["end_logits"][i, :length] = actual.end_logits[0].numpy()
        result["loss"][i] = actual.loss.numpy()
    return result | head(model, "bert.")


def xlnet():
    config = transformers.XLNetConfig(
        vocab_size=61, d_model=18, n_layer=2, n_head=3, d_inner=23, start_n_top=11, end_n_top=11
    )
    model = random_weights(transformers.XLNetForQuestionAnswering(config))
    width = max(LENGTHS)
    ids = torch.randint(5, 61, (3, width))
    # [PAD] ... context [SEP] question [SEP] [CLS]: the context stands where the padding ends.
    real, p_mask = torch.zeros(3, width), torch.ones(3, width)
    starts, ends = [], []
    for i, (length, (_, size)) in enumerate(zip(LENGTHS, CONTEXTS, strict=True)):
        pad = width - length
        real[i, pad:] = 1
        p_mask[i, pad : pad + size] = 0
        p_mask[i, -1] = 0
        first, last = ANSWERS[i]
        shift = pad - CONTEXTS[i][0]
        starts.append(first + shift if first else width - 1)
        ends.append(last + shift if last else width - 1)
    common = {
        "attention_mask": real,
        "p_mask": p_mask,
        "cls_index": torch.full((3,), width - 1),
        "use_mems": False,
        "output_hidden_states": True,
    }
    actual = model(ids, **common)
    states = actual.hidden_states[-1]
    start_logits = model.start_logits(states, p_mask=p_mask)
    positions = torch.tensor(starts)
    end_logits = model.end_logits(states, start_positions=positions, p_mask=p_mask)
    every = torch.arange(width).repeat(3, 1)
    conditional = torch.stack(
        [
            model.end_logits(states, start_positions=every[:, i], p_mask=p_mask)
            for i in range(width)
        ],
        dim=1,
    )
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    total = (loss(start_logits, positions) + loss(end_logits, torch.tensor(ends))) / 2
    whole = model(ids, start_positions=positions, end_positions=torch.tensor(ends), **common).loss
    assert torch.allclose(total.mean(), whole, atol=1e-5), (total, whole)
    result = {
        "states": states,
        "p_mask": p_mask,
        "start_logits": start_logits,
        "end_logits": conditional,
        "null_logits": actual.cls_logits,
        "loss": total,
        "start_log_probs": torch.log(actual.start_top_log_probs),
        "start_index": actual.start_top_index,
        "end_log_probs": torch.log(actual.end_top_log_probs),
        "end_index": actual.end_top_index,
    }
    return {name: value.numpy() for name, value in result.items()} | head(model, "transformer.")


def main(path=Path(__file__).parent / "span_answer.npz"):
    torch.manual_seed(11)
    arrays = {}
    with torch.no_grad():
        for name, part in (("bert", bert()), ("xlnet", xlnet())):
            arrays |= {f"{name}/{key}": value for key, value in part.items()}
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
