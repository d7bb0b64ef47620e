"""benchmarks.sentencepiece_ids: what it says of paragraphs that get other ids."""

import sys

import sentencepiece

from benchmarks import sentencepiece_ids
from official import tokenizers
from tests.official.conversion import systems


def test_paragraphs_that_differ_are_named(tmp_path, monkeypatch, capsys):
    model = systems.sentencepiece_model()
    (tmp_path / "model").write_bytes(model)
    (tmp_path / "text.txt").write_text("the cat\n\n a dog\nthe mat\n")
    asked = []

    class Peer:
        """Transformers, which gives the second paragraph one id more."""

        def __init__(self, name, environment, script, settings):
            asked.append((environment, settings["class"]))
            self._ids = sentencepiece.SentencePieceProcessor(model_proto=model).encode

        def ask(self, texts):
            return [self._ids(text) + [9] * (text == "a dog") for text in texts]

        def close(self):
            asked.append("closed")

    monkeypatch.setattr(sentencepiece_ids, "Process", Peer)
    options = [f"--model={tmp_path / 'model'}", f"--input={tmp_path / 'text.txt'}"]
    monkeypatch.setattr(sys, "argv", ["x", "--class=XLNetTokenizer", *options])
    sentencepiece_ids.main()
    assert asked == [("hf", "XLNetTokenizer"), "closed"]
    piece = tokenizers.SentencePiece(model).pieces[9]
    assert capsys.readouterr().out.splitlines() == [
        f"here '', there {piece!r} in 'a dog'",
        "XLNetTokenizer: 2 of 3 paragraphs equal",
    ]
