"""Late interaction of sentence-transformers; `test_late_interaction_parity.py` starts it.

    python st_late_interaction.py losses IN.npz OUT.npz
    python st_late_interaction.py train TEXTS.json FOLDER
    python st_late_interaction.py folders OUT
    python st_late_interaction.py answer OUT

`losses`: IN has `cases` in JSON, {name: options of the objective}, and of each case the states of
tokens `states/NAME` [B, C, T, D], where they are real, `real/NAME` [B, C, T], where queries are
expanded, `expanded/NAME` [B, T], the `kernel/NAME` [D, V] of the projection, and the scores of a
teacher, `teacher/NAME` [B, C - 1]. OUT has the `loss`, a mean over the examples, and its
`gradient` with respect to the states.

`train`: a random BERT learns from the TEXTS of queries, documents and negatives, [steps, 3, B].
FOLDER gets `bert/`, `after/` and `out.npz` with the `losses`, and the `first` and the last `kernel`
of the projection.

`folders` writes a folder for each case, and `answer`s with them: OUT/answers.json has the vectors
of the `queries` and the `documents` of OUT/texts.json, and their scores.
"""

import json
import shutil
import string
import sys
from pathlib import Path

import hf5_tokenizers
import hf_way_back
import numpy as np
import torch
import transformers
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder import losses, scoring
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

SIZES = {
    "hidden_size": 18, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 22,
}  # fmt: skip
# Folder: the system in `hf_way_back`, the side of padding, settings of Transformer and model.
CASES = {
    "roberta": (
        "roberta",
        "right",
        {"query_expansion": {"strategy": "min", "attend": True, "length": 7}, "query_length": 11},
        {"prompts": {"query": "in Spain: ", "document": "the sea. "}},
    ),
    "modernbert_left": (
        "modernbert", "left", {"document_length": 9}, {"similarity_fn_name": "meanmaxsim"},
    ),
    "electra": ("electra", "right", {"query_length": 8}, {}),
}  # fmt: skip
EPSILON, RATE = 1e-4, 1e-3
MARKERS = "[Q] ", "[D] "
WORDS = [
    "the",
    "cat",
    "dog",
    "sat",
    "on",
    "a",
    "mat",
    "ran",
    "far",
    "##s",
    "##x",
    ".",
    ",",
    "!",
    "?",
]


class States(torch.nn.Module):
    """In place of an encoder: the states of the rows that `input_ids` numbers."""

    def __init__(self, states):
        super().__init__()
        self.states = states  # [N, T, D]

    def forward(self, features):
        ids = features["input_ids"]  # the number of the row, at each position
        return {**features, "token_embeddings": self.states[ids[:, 0], : ids.shape[1]]}


class Model(torch.nn.Module):
    """What a loss asks of a MultiVectorEncoder."""

    device = "cpu"

    def __init__(self, *parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, features, task=None):
        for part in self.parts:
            known = {"task": task} if isinstance(part, MultiVectorMask) else {}
            features = part(dict(features), **known)
        return features


def dense(kernel):
    """The projection [D, V]."""
    tokens = "token_embeddings"
    made = Dense(
        *kernel.shape, bias=False, activation_function=torch.nn.Identity(), module_input_name=tokens
    )
    made.linear.weight.data = torch.tensor(kernel.T)
    return made


def loss_of(model, options):
    kind = options.get("loss", "multiple_negatives")
    mean = "mean_" if options.get("mean") else ""
    if kind == "distillation":
        score = getattr(scoring, f"{mean}colbert_kd_scores")
        return losses.MultiVectorDistillKLDivLoss(
            model, similarity_fct=score, temperature=options.get("temperature", 1.0)
        )
    if kind == "margin_mse":
        score = getattr(scoring, f"{mean}colbert_scores_pairwise")
        return losses.MultiVectorMarginMSELoss(model, similarity_fct=score)
    how = {
        "similarity_fct": getattr(scoring, f"{mean}colbert_scores"),
        "scale": options.get("scale", 1.0),
    }
    if rows := options.get("cached_rows"):
        return losses.CachedMultiVectorMultipleNegativesRankingLoss(
            model, mini_batch_size=rows, **how
        )
    return losses.MultiVectorMultipleNegativesRankingLoss(model, **how)


def compute_losses(given, output):
    arrays, results = dict(np.load(given)), {}
    for name, options in json.loads(str(arrays["cases"])).items():
        states = torch.tensor(arrays[f"states/{name}"], requires_grad=True)
        real = torch.tensor(arrays[f"real/{name}"]).long()
        rows = torch.arange(real.shape[0] * real.shape[1]).reshape(real.shape[:2])
        features = [
            {
                "input_ids": rows[:, c, None].expand(-1, real.shape[2]),
                "attention_mask": real[:, c],
                "task": "document" if c else "query",
            }
            for c in range(real.shape[1])
        ]
        features[0]["query_expansion_positions"] = torch.tensor(arrays[f"expanded/{name}"])
        parts = [States(states.flatten(0, 1)), dense(arrays[f"kernel/{name}"])]
        model = Model(*parts, MultiVectorMask(), Normalize("token_embeddings"))
        loss = loss_of(model, options)
        value = loss(features, torch.tensor(arrays[f"teacher/{name}"]))
        value.backward()
        results[f"loss/{name}"] = value.detach().numpy()
        results[f"gradient/{name}"] = states.grad.numpy()
    np.savez(output, **results)


def make(folder):
    """A MultiVectorEncoder of odd sizes with random weights, whose BERT is in `folder`."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=19)
    tokenizer.add_tokens(list(MARKERS))
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=15, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=21, max_position_embeddings=19, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, initializer_range=0.3,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    transformer = Transformer(
        str(folder), query_expansion={"strategy": "fixed", "length": 9}, document_length=13
    )
    kernel = np.random.default_rng(1).normal(0, 0.3, (15, 7)).astype(np.float32)
    mask = MultiVectorMask(list(string.punctuation), skiplist_tasks="document")
    parts = [transformer, dense(kernel), mask, Normalize("token_embeddings")]
    prompts = dict(zip(("query", "document"), MARKERS, strict=True))
    return MultiVectorEncoder(modules=parts, prompts=prompts, device="cpu"), kernel


def train(texts, folder):
    folder = Path(folder)
    model, kernel = make(folder / "bert")
    model.double()
    model.train()
    loss = losses.MultiVectorMultipleNegativesRankingLoss(model)
    moments = [
        (p, torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters() if p.requires_grad
    ]
    values = []
    for columns in json.loads(Path(texts).read_text()):
        features = []
        for task, column in zip(("query", "document", "document"), columns, strict=True):
            prompt = model.prompts[task]
            features.append({**model.preprocess(column, prompt=prompt, task=task), "task": task})
        value = loss(features)
        model.zero_grad()
        value.backward()
        values.append(value.item())
        with torch.no_grad():  # Adam as in BERT's release
            for parameter, first, second in moments:
                if (slope := parameter.grad) is None:  # of the pooler
                    continue
                first.mul_(0.9).add_(slope, alpha=0.1)
                second.mul_(0.999).addcmul_(slope, slope, value=0.001)
                parameter.sub_(RATE * first / (second.sqrt() + EPSILON))
    after = folder / "after"
    shutil.copytree(folder / "bert", after)
    model[0].model.float().save_pretrained(after)
    kernels = {"first": kernel, "kernel": model[1].linear.weight.detach().numpy().T}
    np.savez(folder / "out.npz", losses=values, **kernels)


def write_folders(out):
    """The systems, the side of padding and the settings differ from case to case."""
    out = Path(out)
    make(out / "old" / "own")[0].save_pretrained(str(out / "bert"))
    sources = hf5_tokenizers.sources(out)
    for seed, (name, (system, side, transformer, more)) in enumerate(CASES.items()):
        classes, source, sizes = hf_way_back.MODELS[system]
        kind, folder, settings = sources[source]
        tokenizer = kind.from_pretrained(folder, **settings, model_max_length=24, padding_side=side)
        sizes = {**sizes, **SIZES, "vocab_size": len(tokenizer)}
        torch.manual_seed(seed)
        cls = getattr(transformers, f"{classes}Model")
        cls(cls.config_class(**sizes, pad_token_id=tokenizer.pad_token_id)).save_pretrained(
            out / "old" / name
        )
        tokenizer.save_pretrained(out / "old" / name)
        kernel = np.random.default_rng(seed).normal(0, 0.3, (18, 5)).astype(np.float32)
        parts = [Transformer(str(out / "old" / name), **transformer), dense(kernel)]
        parts += [MultiVectorMask([".", "?"] * (seed % 2)), Normalize("token_embeddings")]
        model = MultiVectorEncoder(modules=parts, device="cpu", **more)
        model.save_pretrained(str(out / name))
    shutil.rmtree(out / "old")
    answer(out)


def answer(out):
    out = Path(out)
    texts, answers = json.loads((out / "texts.json").read_text()), {}
    for folder in sorted(path.parent for path in out.glob("*/modules.json")):
        model = MultiVectorEncoder(str(folder), device="cpu")
        queries = model.encode_query(texts["queries"], batch_size=3)
        documents = model.encode_document(texts["documents"], batch_size=3)
        answers[folder.name] = {
            "queries": [each.tolist() for each in queries],
            "documents": [each.tolist() for each in documents],
            "scores": model.similarity(queries, documents).tolist(),
        }
    (out / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    mode, *paths = sys.argv[1:]
    modes = {
        "losses": compute_losses,
        "train": train,
        "folders": write_folders,
        "answer": answer,
    }
    modes[mode](*paths)
