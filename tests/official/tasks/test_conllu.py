"""Words and tags of CoNLL-U, and comments of plain CoNLL."""

import pytest

from official.tasks import conllu, tag_files
from official.tasks.named_tasks import CONLL_COLUMNS
from official.tasks.task import Columns
from official.utils.errors import UserError
from official.utils.text_lines import BadRows

ITALIAN = """\
# sent_id = 1
# text = Vado al mare.
1\tVado\tandare\tVERB\tV\t_\t0\troot\t_\t_
2-3\tal\t_\t_\t_\t_\t_\t_\t_\t_
2\ta\ta\tADP\tE\t_\t4\tcase\t_\t_
3\til\til\tDET\tRD\tGender=Masc\t4\tdet\t_\t_
4\tmare\tmare\tNOUN\tS\t_\t1\tobl\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\tFS\t_\t1\tpunct\t_\t_

# text = Sue likes tea and Bo coffee
1\tSue\tSue\tPROPN\tSP\t_\t2\tnsubj\t_\t_
2\tlikes\tlike\tVERB\tV\t_\t0\troot\t_\t_
3\ttea\ttea\tNOUN\tS\t_\t2\tobj\t_\t_
4\tand\tand\tCCONJ\tCC\t_\t5\tcc\t_\t_
5\tBo\tBo\tPROPN\tSP\t_\t2\tconj\t_\t_
5.1\tlikes\tlike\tVERB\tV\t_\t_\t_\t2:conj\t_
6\tcoffee\tcoffee\tNOUN\tS\t_\t5\torphan\t_\t_

"""


def read(tmp_path, text, columns=CONLL_COLUMNS, name="ud.conllu", **options):
    path = tmp_path / name
    path.write_text(text)
    return list(tag_files.read(path, columns, **options))


def of(text, label):
    return Columns(text, None, label, header=False)


@pytest.mark.parametrize("columns", [CONLL_COLUMNS, of("1", "3"), of("form", "UPOS")])
@pytest.mark.parametrize("name", ["ud.conllu", "ud.txt"])
def test_words_are_lines_with_whole_numbers(tmp_path, columns, name):
    first, second = read(tmp_path, ITALIAN, columns, name)
    assert first.words == ("Vado", "a", "il", "mare", ".")
    assert first.tags == ("VERB", "ADP", "DET", "NOUN", "PUNCT")
    assert first.lines == (3, 5, 6, 7, 8) and first.location.endswith(", line 3")
    assert second.words == ("Sue", "likes", "tea", "and", "Bo", "coffee")


def test_ranges_as_they_stand_in_the_text(tmp_path):
    first, second = read(tmp_path, ITALIAN, multiword="surface")
    assert first.words == ("Vado", "al", "mare", ".")
    assert first.tags == ("VERB", "ADP+DET", "NOUN", "PUNCT")
    assert len(second.words) == 6
    entities = ITALIAN.replace("\tADP\t", "\tB-X\t").replace("\tDET\t", "\tI-X\t")
    assert read(tmp_path, entities, multiword="surface")[0].tags[1] == "B-X"
    own = ITALIAN.replace("al\t_\t_\t", "al\t_\tBOTH\t")
    assert read(tmp_path, own, multiword="surface")[0].tags[1] == "BOTH"
    with pytest.raises(UserError, match="line 4: 2-9 ends behind the last word, 5"):
        read(tmp_path, ITALIAN.replace("2-3", "2-9"), multiword="surface")


def test_other_columns(tmp_path):
    assert read(tmp_path, ITALIAN, of("lemma", "deprel"))[0].tags[0] == "root"
    assert read(tmp_path, ITALIAN, of("form", "feats"))[0].tags == (
        "_",
        "_",
        "Gender=Masc",
        "_",
        "_",
    )
    plus = "# global.columns = ID FORM PARSEME:MWE\n1\ta\tB-X\n2\tb\t_\n\n1\tc\tO\n"
    bad = BadRows(skip=True)
    (only,) = read(tmp_path, plus, of("form", "parseme:mwe"), "a.cupt", bad=bad)
    assert only.words == ("c",) and bad.counts == {"a word without a tag": 1}
    with pytest.raises(UserError, match=r"no column 'uposs' \(did you mean 'upos'\?\)"):
        read(tmp_path, ITALIAN, of("form", "uposs"))


def test_texts_without_tags_are_counted(tmp_path):
    bad = BadRows()
    blank = (
        ITALIAN.replace("NOUN", "_")
        .replace("PROPN", "_")
        .replace("VERB", "_")
        .replace("CCONJ", "_")
    )
    (first, _), second = ITALIAN.split("\n\n", 1), blank.split("\n\n", 1)[1]
    assert len(read(tmp_path, f"{first}\n\n{second}", bad=bad)) == 1
    assert bad.counts == {"without tags": 1}
    (untagged,) = read(tmp_path, second, labeled=False)
    assert untagged.tags is None and len(untagged.words) == 6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mare\tNOUN", "mare\t_", "line 7: the word 'mare' has no tag .its column upos is '_'"),
        ("\n4\tmare", "\n\n4\tmare", "line 8: id 4 where 1 is expected"),
        ("4\tmare\t", "4 mare\t", "line 7: .* expected 10 columns separated by tabs"),
        ("4\tmare\tm", "4\t\tm", "line 7: the word is empty"),
    ],
)
def test_broken_lines_are_refused(tmp_path, old, new, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, ITALIAN.replace(old, new))


def test_content_tells_the_format(tmp_path):
    path = tmp_path / "a.txt"
    for text, found in [
        (ITALIAN, True),
        ("1\tB-X\n2\tO\n", False),
        ("# a\nb O\n", False),
        ("", False),
    ]:
        path.write_text(text)
        assert conllu.is_conllu(path) == found
    assert read(tmp_path, "1\tB-X\n", format="conll", name="b.txt")[0].words == ("1",)


def test_comments_of_plain_conll_stand_before_the_first_word(tmp_path):
    text = "# sent_id = 1\n# id\tx\ty\n#\tO\na\tB-X\n# no comment\tO\n\n#\tO\nb\tO\n\n#\tO\n"
    texts = read(tmp_path, text, name="a.conll")
    assert [each.words for each in texts] == [("#", "a", "# no comment"), ("#", "b"), ("#",)]
    with pytest.raises(UserError, match="line 1: one column .'#'., expected a word and its tag"):
        read(tmp_path, "#\na O\n", name="a.conll")
