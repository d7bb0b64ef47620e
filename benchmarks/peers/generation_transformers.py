"""The side of PyTorch transformers in `generation`."""

import generation_work as work
import torch
from transformers import GenerationConfig, T5ForConditionalGeneration


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()
    dtype = getattr(torch, settings["precision"])
    folder = f"{settings['folder']}/huggingface"
    model = T5ForConditionalGeneration.from_pretrained(folder, dtype=dtype).eval()

    @torch.inference_mode()
    def generate(ids, beams):
        ids = torch.from_numpy(ids)
        config = GenerationConfig(
            max_new_tokens=settings["new_tokens"],
            num_beams=beams,
            do_sample=False,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
        )
        tokens = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config
        )
        return tokens[:, 1:].numpy()  # Without the start token.

    work.serve(settings, generate)


if __name__ == "__main__":
    main()
