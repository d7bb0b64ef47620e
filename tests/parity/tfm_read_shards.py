"""Reads shards with tf-models-official's own pretraining loader.

python tfm_read_shards.py SHARDS_GLOB LENGTH PREDICTIONS OUT.npz FORMAT
"""

import sys

import numpy as np
from official.nlp.data import pretrain_dataloader


def main(shards: str, length: int, predictions: int, target: str, format: str) -> None:
    """Writes the tensors of all examples, in order."""
    params = pretrain_dataloader.BertPretrainDataConfig(
        input_path=shards,
        seq_length=length,
        max_predictions_per_seq=predictions,
        global_batch_size=7,
        is_training=False,
        drop_remainder=False,
        use_v2_feature_names=format == "tf_models_v2",
    )
    batches = list(pretrain_dataloader.BertPretrainDataLoader(params).load())
    np.savez(target, **{k: np.concatenate([b[k].numpy() for b in batches]) for k in batches[0]})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
