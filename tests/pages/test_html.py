"""Text from users never becomes markup."""

from hypothesis import given
from hypothesis import strategies as st

from targets.kudu.pages.parts import Html, join, link, tag
from tests.pages.samples import read

# A parser drops NUL and normalises line ends; all other text must be preserved.
TEXTS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]))


@given(TEXTS)
def test_text_comes_back_as_it_was_and_makes_no_tags(text):
    html = tag("p", text, title=text)
    said, tags, _ = read(html)
    assert (said, tags) == (" ".join(text.split()), ["p"])


@given(TEXTS, TEXTS)
def test_an_attribute_never_ends_early(text, query):
    _, tags, links = read(tag("p", link(text, "/table", id=query), title=text))
    assert tags == ["p", "a"]
    assert len(links) == 1
    assert links[0].isascii()


def test_markup_is_not_escaped_twice_and_none_is_nothing():
    assert tag("p", tag("b", "<"), None, 0, Html("&ndash;")) == "<p><b>&lt;</b>0&ndash;</p>"
    assert join("a", None) == "a"


def test_attributes():
    html = tag("a", class_="x", aria_current=None, data_id='"')
    assert html == '<a class="x" data-id="&quot;"></a>'
