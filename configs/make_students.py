"""Writes the configs of the 24 Well-Read Students (Turc et al., 2019) into configs/students/.

  python configs/make_students.py

The sizes are layers × hidden size, with a head for each 64 numbers of a state and a feed-forward
network of four times the hidden size (the table of the release).
"""

from pathlib import Path

LAYERS = (2, 4, 6, 8, 10, 12)
SIZES = (128, 256, 512, 768)
NAMES = {
    (2, 128): "tiny",
    (4, 256): "mini",
    (4, 512): "small",
    (8, 512): "medium",
    (12, 768): "base",
}
FOLDER = Path(__file__).parent / "students"
TEMPLATE = """\
# BERT {layers} × {size}{called}: one of the 24 Well-Read Students (Turc et al., 2019).
# configs/make_students.py writes this file.
#
#   python -m tfrecords_tools.build_shards --config=configs/students/{name}.yaml \\
#     --input='text/*.txt' --tokenizer=TOKENIZER --output=SHARDS --workers=8
#   python -m official.main --mode=train --config=configs/students/{name}.yaml \\
#     --data=SHARDS --model_dir=MODEL --distribution_strategy=mirrored
#
# The release trains the students with BERT's recipe; what is below is that of bert_base.yaml.
# Then they learn a task from a teacher: configs/finetune/distillation.yaml.
name: {name}
seed: 0
segments:
  format: pairs
  max_length: 128
  short_seq_prob: 0.1
  random_next_prob: 0.5
  duplicates: 10
corruption:
  type: token_masks
  unit: token
  mask_rate: 0.15
  max_predictions: 20
encoder:
  type: transformer
  vocab_size: 30522           # the release's uncased vocabulary
  hidden_size: {size}
  num_layers: {layers}
  num_heads: {heads}                # H / 64
  intermediate_size: {inner}     # 4 H
  max_positions: 512
  segment_types: 2
  activation: gelu_tanh
  dropout: 0.1
  attention_dropout: 0.1
objectives:
  - type: masked_lm
  - type: sentence_pair
    relation: next_sentence
recipe:
  steps: 900000
  batch_size: 256
  precision: mixed_bfloat16
  optimizer:
    type: adamw
    learning_rate: 1.0e-4
    weight_decay: 0.01
    clip_norm: 1.0
  schedule:
    type: bert
    steps: 1000000
    warmup_steps: 10000
  report_every: 100
  eval_every: 10000
  save_every: 5000
"""


def texts() -> dict[str, str]:
    """Returns the text of each config by the name of its file."""
    result = {}
    for layers in LAYERS:
        for size in SIZES:
            name = f"bert_{layers}_{size}"
            called = f", BERT-{NAMES[layers, size]}" if (layers, size) in NAMES else ""
            sizes = {"layers": layers, "size": size, "heads": size // 64, "inner": 4 * size}
            result[f"{name}.yaml"] = TEMPLATE.format(name=name, called=called, **sizes)
    return result


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
