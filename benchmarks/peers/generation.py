"""The sides of `benchmarks.generation`: our generator, and PyTorch transformers'.

A request has the number of `rows`, of `beams` and of tokens to sample from (`top_k`). A side
generates from the same inputs as the others, and answers with the seconds and the tokens. The
settings are `model`, `folder`, `precision`, `vocab`, `length` (T) and `new_tokens` (N).

Shapes: B rows, T input tokens, N new tokens.
"""

from collections.abc import Callable

import numpy as np
import server

END = 1  # the end token of the T5


def inputs(settings: dict, rows: int) -> np.ndarray:
    """Returns random token ids int64 [B, T] without special tokens, the same for every side."""
    shape = (rows, settings["length"])
    return np.random.default_rng(rows).integers(3, settings["vocab"] - 1, shape)


def serve(settings: dict, generate: Callable[[np.ndarray, int, int], np.ndarray]) -> None:
    """Answers requests.

    Args:
      settings: the settings of the side.
      generate: a function of token ids [B, T], the number of beams and the number of most probable
        tokens to sample from (0 = no sampling); returns the new tokens [B, N].
    """

    def answer(request: dict) -> dict:
        ids = inputs(settings, request["rows"])
        seconds, tokens = server.timed(generate, ids, request["beams"], request["top_k"])
        return {"seconds": seconds, "tokens": np.asarray(tokens).tolist()}

    server.serve(answer)


def ours(settings: dict) -> None:
    """Our side: a model folder, loaded by `official.load`."""
    from official.saving import model_folder
    from official.saving.generation_settings import Settings
    from official.saving.served_model import ServedModel
    from official.serving.generation.generator import Generator

    folder = f"{settings['folder']}/converted"
    source = model_folder.ModelFolder.open(folder)
    config, tokenizer = source.config, source.tokenizer
    model = source.model(settings["precision"])
    generator = Generator(ServedModel(config, tokenizer, model, settings["length"], {}))

    def generate(ids, beams, top_k):
        search = Settings(
            max_new_tokens=settings["new_tokens"],
            temperature=1.0 if top_k else 0.0,
            top_k=top_k,
            num_beams=beams,
            length_penalty=1.0,
            length_rule="huggingface",
        )
        return generator.ids(ids, np.ones(ids.shape, bool), search)

    serve(settings, generate)


def transformers(settings: dict) -> None:
    """The side of PyTorch transformers."""
    import torch
    from transformers import GenerationConfig, GPT2LMHeadModel, T5ForConditionalGeneration

    kind, special, before = {
        # A start token comes before the new tokens.
        "t5": (
            T5ForConditionalGeneration,
            {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": END},
            1,
        ),
        # The prompt comes before the new tokens.
        "gpt2": (
            GPT2LMHeadModel,
            {"pad_token_id": 0, "eos_token_id": settings["vocab"] - 1},
            settings["length"],
        ),
    }[settings["model"]]
    dtype = getattr(torch, settings["precision"])
    model = kind.from_pretrained(f"{settings['folder']}/huggingface", dtype=dtype).eval()

    @torch.inference_mode()
    def generate(ids, beams, top_k):
        ids = torch.from_numpy(ids)
        drawing = {"do_sample": True, "top_k": top_k} if top_k else {"do_sample": False}
        config = GenerationConfig(
            max_new_tokens=settings["new_tokens"], num_beams=beams, **drawing, **special
        )
        tokens = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config
        )
        return tokens[:, before:].numpy()

    serve(settings, generate)


def write(size: dict) -> None:
    """Writes a model of transformers with random weights that never generates its end token."""
    import torch

    torch.manual_seed(0)
    {"t5": _t5, "gpt2": _gpt2}[size["model"]](size).save_pretrained(size["folder"])


def _t5(size: dict):
    """Returns a T5 1.1."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=size["vocab"],
        d_model=size["hidden"],
        d_kv=size["hidden"] // size["heads"],
        d_ff=size["intermediate"],
        num_layers=size["layers"],
        num_heads=size["heads"],
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        # With fresh weights the output repeats one token; with these it varies with the text.
        model.lm_head.weight.normal_(0, 1)
        model.lm_head.weight[END] = 0
    return model


def _gpt2(size: dict):
    """Returns a GPT-2."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=size["vocab"],
        n_positions=size["positions"],
        n_embd=size["hidden"],
        n_layer=size["layers"],
        n_head=size["heads"],
        n_inner=size["intermediate"],
        # with the usual 0.02 the output repeats one token
        initializer_range=0.04,
        bos_token_id=size["vocab"] - 1,
        eos_token_id=size["vocab"] - 1,
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.wte.weight[-1] = 0
    return model


if __name__ == "__main__":
    server.main(ours, transformers, write)
