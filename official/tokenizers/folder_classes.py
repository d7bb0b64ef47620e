"""The classes of transformers' tokenizers: those that are supported, and those that are refused.

A class decides what its files do not say: whether text is lower-cased, whether the tokenizer
returns types of tokens (`token_type_ids`), and which options of `tokenizer.json` the settings
replace. `tokenizer_config.json` names the class, or else `config.json`; otherwise it follows from
the `model_type`. "Fast" at the end of a name is dropped: both forms have the same rules.
"""

import dataclasses

from official.utils.errors import UserError

# The classes that read only `tokenizer.json`, in versions 4 and 5.
ALONE = ("PreTrainedTokenizerFast", "TokenizersBackend")


@dataclasses.dataclass(frozen=True)
class TokenizerClass:
    """A supported class.

    Attributes:
      name: its name in transformers, without "Fast".
      kind: the kind of its vocabulary in this project.
      lower_case: `do_lower_case` where no file says it; None = the class never lower-cases.
      types: whether the tokenizer returns types of tokens if `model_input_names` is not set, in
        transformers 4.57 and 5.24.
      replaces: the options of components of `tokenizer.json` that transformers 4 replaces by
        settings, or by the defaults listed here. Only a component that is not in a sequence is
        changed.
      rebuilds: whether transformers 5 takes only the vocabulary from `tokenizer.json`, and builds
        the normalizer and the pre-tokenizer from settings.
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

# If no file names a class: `model_type` of config.json -> the class that transformers takes.
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
# Classes with unsupported rules: {class: (the rules, the way out)}.
REFUSED_CLASSES: dict[str, tuple[str, str]] = {
    "BertJapaneseTokenizer": (
        "it splits words by MeCab, Sudachi, Juman++ or its own rules, and words may become "
        "characters",
        _SPLIT_FIRST,
    ),
    "HerbertTokenizer": (_CHARACTERS, _AS_JSON),
    "XLMTokenizer": (_CHARACTERS, _AS_JSON),
    "FlaubertTokenizer": (_CHARACTERS, _AS_JSON),
    "CLIPTokenizer": (_CHARACTERS, _AS_JSON),
    "OpenAIGPTTokenizer": (_CHARACTERS, _AS_JSON),
    "LlamaTokenizer": ("its rules for blanks are not supported", _AS_JSON),
    "GPTNeoXTokenizer": ("the special tokens that it adds are not supported", _AS_JSON),
    "BigBirdTokenizer": ("its rules for blanks are not supported", _AS_JSON),
    "RoFormerTokenizer": ("jieba splits its words", _SPLIT_FIRST),
    "RoCBertTokenizer": ("it also returns the shapes and sounds of characters", _AS_JSON),
    "CpmTokenizer": ("jieba splits its words", _AS_JSON),
    "TransfoXLTokenizer": ("its pieces are words, split by the rules of Moses", _AS_JSON),
    "FunnelTokenizer": ("its first token has a separate type", _AS_JSON),
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
        f"{where}: {name} is not known here, and may have other rules. If one of these classes "
        f"gives the same ids, name it instead: {', '.join(CLASSES)}"
    )
