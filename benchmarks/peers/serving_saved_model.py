"""Our side of `serving`: a SavedModel, loaded as a server does it, without `official`."""

import serving_work as work
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the graph)


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()
    tf.config.threading.set_intra_op_parallelism_threads(settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(settings["at_once"])

    def load():
        # The signatures need the model, so it is kept until the end.
        model = load.model = tf.saved_model.load(f"{settings['folder']}/saved_{settings['mode']}")
        tokens, text = (model.signatures[name] for name in ("tokens", "serving_default"))

        def inputs_from(rows):
            batch = work.padded(rows)
            ids, mask = (tf.constant(batch[name]) for name in ("ids", "mask"))
            return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}

        def predict_ids(batch):
            return tokens(**batch)["probabilities"].numpy()

        def predict_texts(texts):
            return text(text=tf.constant(texts))["probabilities"].numpy()

        return inputs_from, predict_ids, predict_texts

    work.serve(load, settings)


if __name__ == "__main__":
    main()
