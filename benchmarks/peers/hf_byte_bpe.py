"""The side of the `tokenizers` package in `benchmarks.byte_bpe`; runs in its environment."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

# One process and one thread, like one worker of ours.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402


def main() -> None:
    """Encodes each row of `rows.json` in the folder; writes `seconds.json` and the ids."""
    work, folder = map(Path, sys.argv[1:])
    files = str(folder / "vocab.json"), str(folder / "merges.txt")
    tokenizer = Tokenizer(models.BPE.from_file(*files))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    seconds = {}
    for number, (name, texts) in enumerate(json.loads((work / "rows.json").read_text()).items()):
        started = time.process_time()
        encoded = tokenizer.encode_batch(texts)
        seconds[name] = time.process_time() - started
        np.save(
            work / f"{number}.npy", np.concatenate([np.array(e.ids, np.int32) for e in encoded])
        )
    (work / "seconds.json").write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
