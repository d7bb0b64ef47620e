"""The side of PyTorch transformers in `generation`."""

import generation_work as work
import torch
from transformers import GenerationConfig, GPT2LMHeadModel, T5ForConditionalGeneration


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()
    dtype = getattr(torch, settings["precision"])
    folder = f"{settings['folder']}/huggingface"
    kind, special, before = {
        # A start token comes before the new tokens.
        "t5": (
            T5ForConditionalGeneration,
            {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1},
            1,
        ),
        # The prompt comes before the new tokens.
        "gpt2": (
            GPT2LMHeadModel,
            {"pad_token_id": 0, "eos_token_id": settings["vocab"] - 1},
            settings["length"],
        ),
    }[settings["model"]]
    model = kind.from_pretrained(folder, dtype=dtype).eval()

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

    work.serve(settings, generate)


if __name__ == "__main__":
    main()
