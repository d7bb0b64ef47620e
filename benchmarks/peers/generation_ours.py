"""Our side of `generation`: a model folder, as `official.load` generates with it."""

import generation_work as work
import numpy as np

from official.saving import model_folder
from official.serving import writers
from official.serving.generation_settings import Settings
from official.serving.served_model import ServedModel


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()
    folder = f"{settings['folder']}/converted"
    config, tokenizer, model = model_folder.restore(folder, precision=settings["precision"])
    generator = writers.make(ServedModel(config, tokenizer, model, settings["length"], {}))

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

    work.serve(settings, generate)


if __name__ == "__main__":
    main()
