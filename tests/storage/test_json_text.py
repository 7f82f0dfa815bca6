import pytest

from anybatch.config.require import DEEPEST_NESTING
from anybatch.storage import json_text


def nested(depth: int) -> str:
    return '{"a": [' * (depth // 2) + "1" + "]}" * (depth // 2)


def test_json_is_read_as_it_is():
    assert json_text.parse(b'{"a": [1, 2.5, null, {"b": "c"}]}') == {"a": [1, 2.5, None, {"b": "c"}]}
    assert json_text.parse("3") == 3
    assert json_text.parse(nested(DEEPEST_NESTING))


@pytest.mark.parametrize("depth", [DEEPEST_NESTING + 2, 800, 400_000])
def test_what_is_nested_too_deeply_is_refused(depth: int):
    with pytest.raises(ValueError, match="it is nested too deeply"):
        json_text.parse(nested(depth))


def test_what_is_not_json_is_refused():
    for text in (b"{", b"\xff", "1" * 5000):
        with pytest.raises(ValueError):
            json_text.parse(text)
