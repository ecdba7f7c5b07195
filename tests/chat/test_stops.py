from hypothesis import given, settings
from hypothesis import strategies as st

from mference.chat.stops import StopMatcher

LETTERS = st.text("ab\n🌳", max_size=40)


def naive(text, stops):
    """Search the whole text: the stop completed first, the longest of those completed together."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@given(st.lists(LETTERS, max_size=12), st.lists(st.text("ab\n🌳", max_size=5), max_size=4))
@settings(deadline=None)
def test_chunks_are_cut_where_a_search_of_the_whole_text_cuts(chunks, stops):
    matcher = StopMatcher(stops)
    shown = "".join(map(matcher.push, chunks)) + matcher.flush()
    assert (shown, matcher.stopped) == naive("".join(chunks), stops)


@given(st.lists(LETTERS, max_size=12), st.lists(st.text("ab", min_size=1, max_size=5), max_size=4))
@settings(deadline=None)
def test_no_more_is_held_than_could_begin_a_stop(chunks, stops):
    matcher = StopMatcher(stops)
    shown = ""
    for i, chunk in enumerate(chunks):
        shown += matcher.push(chunk)
        if matcher.stopped:
            break
        held = "".join(chunks[: i + 1])[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops)
