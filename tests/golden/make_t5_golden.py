"""Makes tests/golden/t5/ with transformers: tiny T5s with random weights, and what they compute.

  .parity/hf/bin/python tests/golden/make_t5_golden.py [FOLDER]

Each folder is one of `save_pretrained`, with `golden.npz` beside it: a batch of three with padding
on both sides, the states of both stacks, the logits, gradients of the loss by some tensors, and the
losses of 50 steps of plain gradient descent on the batch. `encoder` is a `T5EncoderModel`: its
`golden.npz` has the states of the batch, and the mean of the states of each text.
"""

import io
import sys
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from transformers import T5Config, T5EncoderModel, T5ForConditionalGeneration, T5Tokenizer
from transformers.models.t5 import modeling_t5

# transformers computes norms and softmax in float32 whatever the type is. Here all is float64, so
# that differences of the two are those of the formulas.
torch.Tensor.float = lambda self: self
modeling_t5.T5LayerNorm.forward = lambda self, x: (
    self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
)

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "t5"
SIZES = {
    "v1_0": {"d_model": 14, "d_kv": 5, "d_ff": 18, "num_layers": 2, "num_heads": 3},
    "v1_0_deep": {
        "d_model": 10, "d_kv": 8, "d_ff": 12, "num_layers": 1, "num_decoder_layers": 3,
        "num_heads": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6,
    },
    "v1_1": {
        "d_model": 12, "d_kv": 3, "d_ff": 20, "num_layers": 3, "num_decoder_layers": 2,
        "num_heads": 5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    },
    "silu": {
        "d_model": 6, "d_kv": 3, "d_ff": 8, "num_layers": 1, "num_heads": 2,
        "feed_forward_proj": "gated-silu", "tie_word_embeddings": False,
    },
}  # fmt: skip
TEXT = ["the cat sat on the mat", "a dog ran to the old house", "we read the book of the day"]
GRADIENTS = (
    "shared.weight",
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "encoder.block.0.layer.0.SelfAttention.q.weight",
    "decoder.block.0.layer.1.EncDecAttention.v.weight",
    "decoder.final_layer_norm.weight",
)


def tokenizer(folder: Path) -> int:
    """Writes a small vocabulary in the form of T5's; returns its size with 100 sentinels."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 20), model_writer=model, model_type="unigram",
        vocab_size=29, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, num_threads=1,
        normalization_rule_name="identity",
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spiece.model").write_bytes(model.getvalue())
    made = T5Tokenizer(str(folder / "spiece.model"), extra_ids=100, legacy=False)
    made.save_pretrained(folder)
    return len(made)


def random(kind, sizes: dict, vocab: int, seed: int):
    """Returns a model of a class with random weights."""
    torch.manual_seed(seed)
    config = T5Config(vocab_size=vocab + 4, decoder_start_token_id=0, dropout_rate=0.0, **sizes)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 1.0 if parameter.ndim == 1 else 0.4
            parameter.copy_(scale * torch.randn_like(parameter) + (parameter.ndim == 1))
    return model


MASK = np.array([[1] * 6 + [0] * 3, [0] * 4 + [1] * 5, [1] * 9])


def make(name: str, sizes: dict, seed: int) -> None:
    """Writes one model and what it computes."""
    folder = FOLDER / name
    vocab = tokenizer(folder)
    model = random(T5ForConditionalGeneration, sizes, vocab, seed)
    model.save_pretrained(folder)
    model = model.double()
    rng = np.random.default_rng(seed)
    ids, mask = rng.integers(3, vocab, (3, 9)), MASK
    labels = rng.integers(3, vocab, (3, 7))
    labels[0, 4:] = -100
    batch = {
        "input_ids": torch.tensor(ids * mask),
        "attention_mask": torch.tensor(mask),
        "labels": torch.tensor(labels),
    }
    out = model(**batch, output_hidden_states=True)
    out.loss.backward()
    named = dict(model.named_parameters())
    gradients = {f"gradient/{n}": named[n].grad.numpy().copy() for n in GRADIENTS}
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(50):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.savez_compressed(
        folder / "golden.npz",
        ids=ids * mask,
        mask=mask,
        labels=labels,
        encoded=out.encoder_last_hidden_state.detach().numpy(),
        decoded=out.decoder_hidden_states[-1].detach().numpy(),
        logits=out.logits.detach().numpy(),
        loss=out.loss.item(),
        losses=np.array(losses),
        tokens=np.array(T5Tokenizer.from_pretrained(folder)(TEXT[1])["input_ids"]),
        **gradients,
    )
    clean(folder)


def make_encoder(name: str, sizes: dict, seed: int) -> None:
    """Writes a T5EncoderModel and what it computes."""
    folder = FOLDER / name
    vocab = tokenizer(folder)
    model = random(T5EncoderModel, sizes, vocab, seed)
    model.save_pretrained(folder)
    model = model.double()
    ids = np.random.default_rng(seed).integers(3, vocab, (3, 9)) * MASK
    texts = T5Tokenizer.from_pretrained(folder)([*TEXT, ""], return_tensors="pt", padding=True)
    with torch.no_grad():
        states = model(torch.tensor(ids), torch.tensor(MASK)).last_hidden_state
        of_texts, real = model(**texts).last_hidden_state, texts["attention_mask"][..., None]
    means = (of_texts * real).sum(1) / real.sum(1)
    np.savez_compressed(
        folder / "golden.npz", ids=ids, mask=MASK, encoded=states.numpy(), means=means.numpy()
    )
    clean(folder)


def clean(folder: Path) -> None:
    """Removes the files that are not read."""
    for extra in ("generation_config.json", "special_tokens_map.json", "added_tokens.json"):
        (folder / extra).unlink(missing_ok=True)


if __name__ == "__main__":
    for number, (name, sizes) in enumerate(SIZES.items()):
        make(name, sizes, number)
    make_encoder("encoder", SIZES["silu"] | {"num_layers": 2}, len(SIZES))
