import pytest

from mference.chat.tokenizer import Tokenizer
from mference.errors import MissingFile, StoreError, TemplateError
from tests.chat.demo import CHECKPOINT, chat_format


def test_special_tokens_in_text_become_their_ids_and_no_start_token_is_added():
    tokenizer = chat_format().tokenizer
    ids = tokenizer.encode("<|turn>user\nHi<turn|>")
    assert ids[0] == tokenizer.id_of("<|turn>") == 105
    assert ids[-1] == 106
    assert tokenizer.decode(ids, keep_special=True) == "<|turn>user\nHi<turn|>"
    assert tokenizer.decode(ids) == "user\nHi"


def test_an_absent_token_has_no_id_though_there_is_an_unknown_token():
    tokenizer = chat_format().tokenizer
    assert tokenizer.id_of("<|im_end|>") is None
    assert tokenizer.ids_of(["<bos>", "<|im_end|>"]) == {"<bos>": 2}
    assert [tokenizer.token(i) for i in (-1, 1 << 40, tokenizer.size)] == [None] * 3


def test_special_names_come_from_the_configuration():
    assert chat_format().tokenizer.special_names["eot_token"] == "<turn|>"


def test_a_lone_surrogate_is_refused_by_name():
    with pytest.raises(TemplateError, match="not valid Unicode at character 1"):
        chat_format().tokenizer.encode("a\ud800")


def test_a_missing_or_damaged_tokenizer_says_what_to_do(tmp_path):
    with pytest.raises(MissingFile, match="install the model again"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(StoreError, match="is not a tokenizer"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((CHECKPOINT / "tokenizer.json").read_bytes())
    assert Tokenizer.load(tmp_path).config == {}
    for text in ("[]", "{", "[" * 100_000):
        (tmp_path / "tokenizer_config.json").write_text(text)
        with pytest.raises(StoreError, match=r"tokenizer_config\.json"):
            Tokenizer.load(tmp_path)
