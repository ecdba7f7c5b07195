"""What `--json` prints: one object on one line."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mference import jsontext
from mference.errors import Damage
from mference.model import Answer
from mference.store import VerifyReport


def answer_json(answer: Answer) -> str:
    """An answer with its counts; computes what is left of it.

    `reasoning` is there if the model thought, `usage` is in tokens, times are in seconds, `report`
    has the fields of `mference.Report`.
    """
    reply, report = answer.reply, answer.report
    completion = reply.completion
    value: dict[str, Any] = {
        "text": reply.content,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in reply.tool_calls
        ],
        "finish_reason": completion.finish_reason,
        "usage": {
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": completion.completion_tokens,
        },
        "timings": {
            "prefill_seconds": completion.timings.prefill,
            "decode_seconds": completion.timings.decode,
        },
        "report": asdict(report),
    }
    if reply.reasoning:
        value["reasoning"] = reply.reasoning
    return jsontext.compact(value)


def verify_json(report: VerifyReport) -> str:
    """A successful verification; `damaged` is empty."""
    value = {
        "path": str(report.path),
        "files": report.files,
        "bytes": report.bytes,
        "unexpected": report.unexpected,
        "damaged": (),
    }
    return jsontext.compact(value)


def damage_json(path: Path, damaged: tuple[Damage, ...]) -> str:
    """A verification that found damaged files."""
    value = {"path": str(path), "damaged": [asdict(damage) for damage in damaged]}
    return jsontext.compact(value)
