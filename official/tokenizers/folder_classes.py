"""The classes of transformers' tokenizers: those that are read here, and those that are refused.

A class decides what its files do not say: whether text is lower-cased, whether the model is asked
for types of tokens, and which rules of `tokenizer.json` the settings replace.
`tokenizer_config.json` names it, or else `config.json`, or else it follows from the `model_type`.
"Fast" at the end of a name is left out: both forms have the same rules.
"""

import dataclasses

from official.utils.errors import UserError

# The classes that read `tokenizer.json` alone, in versions 4 and 5.
ALONE = ("PreTrainedTokenizerFast", "TokenizersBackend")


@dataclasses.dataclass(frozen=True)
class TokenizerClass:
    """A class that is read here.

    Attributes:
      name: its name in transformers, without "Fast".
      kind: what it is here.
      lower_case: `do_lower_case` where no file says it; None = the class never lower-cases.
      types: whether a model is asked for types of tokens where `model_input_names` is not given, in
        transformers 4.57 and 5.24.
      replaces: the options of components of `tokenizer.json` that transformers 4 replaces by
        settings, or by their defaults here. Those of the first component alone count.
      rebuilds: whether transformers 5 makes the normalizer and the pre-tokenizer anew from settings
        and takes the vocabulary alone from `tokenizer.json`.
    """

    name: str
    kind: str
    lower_case: bool | None = None
    types: tuple[bool, bool] = (False, False)
    replaces: tuple[tuple[str, str, bool | None], ...] = ()
    rebuilds: bool = True


_CASE = (
    ("normalizer.BertNormalizer.lowercase", "do_lower_case", True),
    ("normalizer.BertNormalizer.strip_accents", "strip_accents", None),
)
_BERT = (
    *_CASE,
    ("normalizer.BertNormalizer.handle_chinese_chars", "tokenize_chinese_chars", True),
)
_PREFIX = (("pre_tokenizer.ByteLevel.add_prefix_space", "add_prefix_space", False),)
_BOTH = (True, True)
_WORDS, _BYTES, _UNIGRAM = "WordPiece", "byte-level BPE", "SentencePiece"
_CODES = "BPE of characters"
# The kind of a vocabulary by its file, and the kinds that may lower-case text.
KINDS = {"vocab.txt": _WORDS, "vocab.json": _BYTES, "spiece.model": _UNIGRAM}
CASED = (_WORDS, _UNIGRAM)
_CLASSES = (
    *(
        TokenizerClass(name, _WORDS, True, _BOTH, _BERT)
        for name in (
            "BertTokenizer",
            "ElectraTokenizer",
            "ConvBertTokenizer",
            "LayoutLMTokenizer",
            "LxmertTokenizer",
            "MobileBertTokenizer",
            "SqueezeBertTokenizer",
        )
    ),
    TokenizerClass("DistilBertTokenizer", _WORDS, True, replaces=_BERT),
    TokenizerClass("MPNetTokenizer", _WORDS, True, replaces=_CASE),
    *(
        TokenizerClass(name, _BYTES, replaces=_PREFIX)
        for name in (
            "RobertaTokenizer",
            "BartTokenizer",
            "LEDTokenizer",
            "LongformerTokenizer",
            "GPT2Tokenizer",
        )
    ),
    *(TokenizerClass(name, _CODES) for name in ("PhobertTokenizer", "BertweetTokenizer")),
    TokenizerClass("DebertaTokenizer", _BYTES, types=_BOTH, replaces=_PREFIX),
    TokenizerClass("AlbertTokenizer", _UNIGRAM, True, (True, False)),
    TokenizerClass("XLNetTokenizer", _UNIGRAM, False, (True, False)),
    TokenizerClass("DebertaV2Tokenizer", _UNIGRAM, False, _BOTH),
    *(
        TokenizerClass(name, _UNIGRAM)
        for name in ("CamembertTokenizer", "T5Tokenizer", "XLMRobertaTokenizer")
    ),
    *(
        TokenizerClass(name, "as `tokenizer.json` says", None, (True, False), _PREFIX, False)
        for name in ALONE
    ),
)
CLASSES: dict[str, TokenizerClass] = {each.name: each for each in _CLASSES}

# Where no file names a class: `model_type` of config.json -> the class that transformers takes.
OF_MODELS = {
    "albert": "AlbertTokenizer",
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "deberta": "DebertaTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "ernie": "BertTokenizer",
    "gpt2": "GPT2Tokenizer",
    "modernbert": "PreTrainedTokenizerFast",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "t5": "T5Tokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "xlnet": "XLNetTokenizer",
}

_SPLIT_FIRST = (
    "split the texts with that program first, with a blank between words, and name BertTokenizer "
    "as tokenizer_class with do_lower_case false"
)
_AS_JSON = (
    "if PreTrainedTokenizerFast of transformers reads its tokenizer.json with the same ids, name "
    "that as tokenizer_class"
)
_CHARACTERS = "its BPE joins characters and not bytes"
# Classes with other rules: what is other, and the way out.
REFUSED_CLASSES: dict[str, tuple[str, str]] = {
    "BertJapaneseTokenizer": (
        "MeCab, Sudachi, Juman++ or its own rules split its words, and words may become characters",
        _SPLIT_FIRST,
    ),
    "HerbertTokenizer": (_CHARACTERS, _AS_JSON),
    "XLMTokenizer": (_CHARACTERS, _AS_JSON),
    "FlaubertTokenizer": (_CHARACTERS, _AS_JSON),
    "CLIPTokenizer": (_CHARACTERS, _AS_JSON),
    "OpenAIGPTTokenizer": (_CHARACTERS, _AS_JSON),
    "LlamaTokenizer": ("it has other rules for blanks", _AS_JSON),
    "GPTNeoXTokenizer": ("it adds other special tokens", _AS_JSON),
    "BigBirdTokenizer": ("it has other rules for blanks", _AS_JSON),
    "RoFormerTokenizer": ("jieba splits its words", _SPLIT_FIRST),
    "RoCBertTokenizer": ("it gives the shapes and sounds of characters too", _AS_JSON),
    "CpmTokenizer": ("jieba splits its words", _AS_JSON),
    "TransfoXLTokenizer": ("its pieces are words, split by Moses' rules", _AS_JSON),
    "FunnelTokenizer": ("its first token has a type of its own", _AS_JSON),
}


def named(name: str, where: str) -> TokenizerClass:
    """Returns the class of a name.

    Args:
      name: as in a file, with or without "Fast".
      where: the file and the key, for messages.

    Raises:
      UserError: the class is refused or not known.
    """
    plain = name if name in ALONE else name.removesuffix("Fast")
    if plain in CLASSES:
        return CLASSES[plain]
    if plain in REFUSED_CLASSES:
        other, way = REFUSED_CLASSES[plain]
        raise UserError(f"{where}: {name} is not supported: {other}. Way out: {way}")
    raise UserError(
        f"{where}: {name} is not known here, so its rules may be others. If one of these gives the "
        f"same ids, name it instead: {', '.join(CLASSES)}"
    )
