"""The tables of keys and classes have all that transformers and tokenizers write and read."""

import json

import pytest

from official import tokenizers
from official.tokenizers import folder_classes, folder_keys

# Arguments of classes that are never written: the vocabulary, and what is private. The steps of a
# sequence are components.
NOT_WRITTEN = {"vocab", "merges", "_spm_precompiled_charsmap", "args", "kwargs"}
NOT_WRITTEN |= {f"{p}.Sequence.{steps}" for p, steps in folder_keys.PARTS.items()}


# They ask for types, and give 0 to both texts of a pair.
ONE_TYPE = ("PhobertTokenizer", "BertweetTokenizer")


@pytest.mark.parametrize(("name", "version"), [("hf", 0), ("hf5", 1)])
def test_every_key_and_component_has_a_row(request, name, version, tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    reference = request.getfixturevalue(name)
    classes = [each for each in folder_classes.CLASSES if each not in folder_classes.ALONE]
    found = json.loads(reference.run("hf_tokenizer_keys.py", tmp_path, *classes))
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        rows = {row.key for row in folder_keys.ROWS if row.file == file}
        # The options of components that are refused, and of decoders, need none.
        refused = {row.key for row in folder_keys.ROWS if row.verdict == "refused"}
        lacking = {
            key
            for key in set(found[file]) - rows - NOT_WRITTEN
            if key.rpartition(".")[0] not in refused and key.partition(".")[0] != "decoder"
        }
        assert not lacking, file
    components = {key for key in found["tokenizer.json"] if key.count(".") == 1}
    assert components <= {row.key for row in folder_keys.ROWS}
    assert len(found["classes"]) == len(classes)
    for each, (lower_case, types) in found["classes"].items():
        ours = folder_classes.CLASSES[each]
        types = types and each not in ONE_TYPE
        assert (ours.lower_case, ours.types[version]) == (lower_case, types), each


def test_pieces_of_never_split_are_split(hf, hf5, tmp_path):
    """By the tokenizers that transformers loads. The slow ones of version 4 find them."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]", "link", "a", "[link]", "A"]
    texts = ["a [link] a", "[link]", "A a", "a[link]"]
    (tmp_path / "ids.json").write_text(json.dumps({"texts": texts}))
    ours = {}
    for name, lower in (("cased", False), ("uncased", True)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text("\n".join(pieces) + "\n")
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower,
                    "never_split": ["[link]", "A"]}  # fmt: skip
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps(settings))
        ours[name] = [row.tolist() for row in tokenizers.load(tmp_path / name).encode(texts)]
    for reference in (hf, hf5):
        reference.run("hf_parted_words.py", "read", tmp_path, *ours)
        assert json.loads((tmp_path / "again.json").read_text()) == ours, reference.name
