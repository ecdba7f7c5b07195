"""A chat side with Qwen 3.6's control tokens at their own ids, and with bytes for a vocabulary."""

import json
from functools import cache
from pathlib import Path

import tokenizers

from mference.chat.dialects.chatml import CHATML
from mference.chat.format import ChatFormat
from mference.chat.template import ChatTemplate
from mference.chat.tokenizer import Tokenizer

TEMPLATE = Path(__file__).parents[1] / "data/qwen36/chat_template.jinja"
IDS = {
    "<|endoftext|>": 248044, "<|im_start|>": 248045, "<|im_end|>": 248046,
    "<tool_call>": 248058, "</tool_call>": 248059,
    "<tool_response>": 248066, "</tool_response>": 248067,
    "<think>": 248068, "</think>": 248069,
}  # fmt: skip


def tokenizer_json() -> str:
    """Only the first three control tokens are special, as in the published tokenizer."""
    added = [
        {"id": number, "content": token, "special": token.startswith("<|"), "normalized": False,
         "single_word": False, "lstrip": False, "rstrip": False}
        for token, number in IDS.items()
    ]  # fmt: skip
    byte_level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False,
    }  # fmt: skip
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary | IDS, "merges": []},
        }
    )


@cache
def chat_format() -> ChatFormat:
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(tokenizer_json()))
    return ChatFormat(tokenizer, CHATML, ChatTemplate(TEMPLATE.read_text("utf-8")))
