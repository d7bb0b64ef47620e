"""Prints as JSON what transformers and tokenizers may write into a tokenizer's folder.

Arguments: a folder with vocab.txt, and the names of classes.
"""

import inspect
import json
import os
import sys
import tempfile

import tokenizers
import transformers
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

transformers.logging.set_verbosity_error()
folder, names = sys.argv[1], sys.argv[2:]
marks = [("[CLS]", 2), ("[SEP]", 3)]
made = {
    "normalizer": [
        normalizers.Prepend("a"), normalizers.Replace("a", "b"), normalizers.Sequence([]),
    ],
    "pre_tokenizer": [
        pre_tokenizers.CharDelimiterSplit("a"), pre_tokenizers.Sequence([]),
        pre_tokenizers.Split(Regex("a"), "isolated"),
    ],
    "model": [models.WordLevel({}, "a"), models.WordPiece({}, unk_token="a")],
    "post_processor": [
        processors.BertProcessing(*marks), processors.RobertaProcessing(*marks),
        processors.Sequence([]),
        processors.TemplateProcessing("$A [SEP]", "$A [SEP] $B", marks),
    ],
    "decoder": [decoders.Replace("a", "b"), decoders.Sequence([]), decoders.Strip("a", 1, 1)],
}  # fmt: skip
parts = {
    "normalizer": (normalizers, "Normalizer"),
    "pre_tokenizer": (pre_tokenizers, "PreTokenizer"),
    "model": (models, "Model"),
    "post_processor": (processors, "PostProcessor"),
    "decoder": (decoders, "Decoder"),
}
keys = set()
for part, (module, base) in parts.items():
    done = {type(each) for each in made[part]}
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, getattr(module, base)):
            if value not in done and value.__name__ != base:
                try:
                    made[part].append(value())
                except TypeError:  # it has an argument without a default
                    keys.add(f"{part}.{value.__name__}")
    for component in made[part]:
        state = json.loads(component.__getstate__())
        keys |= {f"{part}.{state['type']}"}
        keys |= {f"{part}.{state['type']}.{key}" for key in state if key != "type"}
whole = Tokenizer(models.BPE())
whole.enable_truncation(5)
described = json.loads(whole.to_str())
keys |= {key for key in described if key not in parts}
keys |= {f"truncation.{key}" for key in described["truncation"]}

classes, settings, specials = {}, set(), set()
for name in names:
    found = getattr(transformers, name, None)
    if found is None:
        continue
    fast = getattr(transformers, f"{name}Fast", found)
    given = inspect.signature(found.__init__).parameters
    lower = given["do_lower_case"].default if "do_lower_case" in given else None
    if lower is None and issubclass(found, getattr(transformers, "BertTokenizer", ())):
        lower = True
    classes[name] = [lower, "token_type_ids" in fast.model_input_names]
    for each in (found, fast):
        settings |= {
            key
            for key, value in inspect.signature(each.__init__).parameters.items()
            if value.kind is value.POSITIONAL_OR_KEYWORD and key != "self"
        }
for name in ("BertTokenizer", "DistilBertTokenizer"):
    loaded = getattr(transformers, name).from_pretrained(folder)
    loaded.add_tokens(["[E1]"])
    with tempfile.TemporaryDirectory() as saved:
        loaded.save_pretrained(saved)
        for file, into in (
            ("tokenizer_config.json", settings),
            ("special_tokens_map.json", specials),
        ):
            path = os.path.join(saved, file)
            if os.path.exists(path):
                with open(path) as stream:
                    into |= set(json.load(stream))
print(json.dumps({
    "tokenizer.json": sorted(keys), "tokenizer_config.json": sorted(settings),
    "special_tokens_map.json": sorted(specials), "classes": classes,
    "version": tokenizers.__version__,
}))  # fmt: skip
