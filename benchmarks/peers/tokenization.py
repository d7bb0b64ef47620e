"""Tokenizers of other packages, for `benchmarks.byte_bpe` and `benchmarks.sentencepiece_ids`."""

import os
import time

import server


def byte_bpe(settings: dict) -> None:
    """The `tokenizers` package with the byte-level BPE of a `folder`.

    For each list of texts it answers with the seconds of this process and the ids of all texts.
    """
    # One process and one thread, like one worker of ours.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer, models, pre_tokenizers

    files = (f"{settings['folder']}/{name}" for name in ("vocab.json", "merges.txt"))
    tokenizer = Tokenizer(models.BPE.from_file(*files))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def answer(texts: list[str]) -> dict:
        started = time.process_time()
        encoded = tokenizer.encode_batch(texts)
        seconds = time.process_time() - started
        return {"seconds": seconds, "ids": [i for each in encoded for i in each.ids]}

    server.serve(answer)


def slow(settings: dict) -> None:
    """A slow tokenizer of transformers, which answers lists of texts with their ids.

    The settings are `class`, AlbertTokenizer or XLNetTokenizer, and `model`, the path of a
    SentencePiece model.
    """
    import transformers

    tokenizer = getattr(transformers, settings["class"])(settings["model"])
    server.serve(lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"])


if __name__ == "__main__":
    server.main(byte_bpe, slow)
