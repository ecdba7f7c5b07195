"""The chat template that came with a checkpoint."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta

from mference.chat import sandbox
from mference.chat.messages import Message
from mference.chat.tokenizer import read_config
from mference.chat.tools import Tool
from mference.errors import StoreError, TemplateError


class MissingTemplateError(TemplateError):
    """The install has no chat template, and these messages cannot be framed without one."""


class ChatTemplate:
    """One compiled template. Rendering is bounded in steps and in length."""

    def __init__(self, source: str, where: str = "chat template") -> None:
        """Compile a template.

        Raises:
            TemplateError: the source is not a jinja2 template; says the line.
        """
        self.source = source
        self.where = where
        try:
            self._compiled = sandbox.BoundedEnvironment().metered(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{where}, line {error.lineno}: {error.message}") from error
        except RecursionError as error:
            raise TemplateError(f"{where}: expressions are nested too deeply") from error

    @cached_property
    def sha256(self) -> str:
        """Hash of the source, for telling apart states that other templates framed."""
        return hashlib.sha256(self.source.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def can_think(self) -> bool:
        """Whether the template asks if thinking is enabled."""
        asked = meta.find_undeclared_variables(sandbox.BoundedEnvironment().parse(self.source))
        return "enable_thinking" in asked

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        special_tokens: Mapping[str, str],
        add_generation_prompt: bool = True,
        enable_thinking: bool = False,
    ) -> str:
        """The prompt text.

        Raises:
            TemplateError: the template refused the messages, failed on them, or did not end.
        """
        variables: dict[str, Any] = {
            **special_tokens,
            "messages": [message.for_template() for message in messages],
            "tools": [tool.for_template() for tool in tools] or None,
            "add_generation_prompt": add_generation_prompt,
            "enable_thinking": enable_thinking,
        }
        try:
            return sandbox.with_budget(lambda: sandbox.joined(self._compiled.generate(variables)))
        except sandbox.TemplateRefusalError as error:
            raise TemplateError(f"{self.where} refuses these messages: {error}") from error
        except sandbox.LimitExceededError as error:
            raise TemplateError(
                f"{self.where} {error}; shorten the conversation, or check the template"
            ) from error
        # A template is a program: on odd messages it can fail with any of Python's exceptions.
        except Exception as error:
            raise TemplateError(
                f"{self.where} failed on these messages: {type(error).__name__}: {error}"
            ) from error


def load_template(directory: str | Path) -> ChatTemplate | None:
    """The template of a tokenizer directory, or None when it has none.

    `chat_template.jinja` wins over `chat_template.json`, and that over the `chat_template` entry
    of `tokenizer_config.json`; of several named templates the one called `default` is taken.

    Raises:
        StoreError: a file that should hold the template cannot be read.
        TemplateError: the template does not compile.
    """
    folder = Path(directory)
    text_file, json_file = folder / "chat_template.jinja", folder / "chat_template.json"
    try:
        if text_file.is_file():
            return ChatTemplate(text_file.read_text("utf-8"), text_file.name)
        holder = json.loads(json_file.read_bytes()) if json_file.is_file() else None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(
            f"the chat template in {folder} cannot be read: {error}; install the model again"
        ) from error
    where = json_file.name if holder is not None else "tokenizer_config.json"
    source = _entry(holder if holder is not None else read_config(folder))
    return ChatTemplate(source, f"chat_template in {where}") if source is not None else None


def _entry(holder: object) -> str | None:
    found = holder.get("chat_template") if isinstance(holder, dict) else None
    if isinstance(found, list):
        named = {e.get("name"): e.get("template") for e in found if isinstance(e, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None
