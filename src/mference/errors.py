# ruff: noqa: N818 - a name states the condition; the tree states that it is an error
"""Every error the package raises on purpose, in one tree below `MferenceError`.

Each message says what went wrong, where, and what to do next. The C++ core raises the
`DeviceError` branch through the same classes.
"""

from dataclasses import dataclass
from typing import Literal


class MferenceError(Exception):
    """Base of all errors that mference raises on purpose."""


class UnsupportedModel(MferenceError):
    """The model is known by name, but this version has no code for its family."""


class InstallError(MferenceError):
    """An installation could not start, continue or finish."""


class SourceMismatch(InstallError):
    """The source is not the pinned checkpoint, or is not a checkpoint of a known family."""


class CheckpointError(InstallError):
    """A source file (safetensors header, index, config) is malformed or inconsistent.

    `reason` names the condition in one fixed word group, such as `missing_scales`,
    `shape_mismatch`, `config_invalid`, `header_too_large` or `tensor_overlap`.
    """

    def __init__(self, message: str, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class HttpError(InstallError):
    """A server could not be reached, or its answer cannot be used."""


class HttpStatusError(HttpError):
    """A server answered with a status that the request does not allow.

    `status` is that number, `retry_after` the server's header of that name.
    """

    def __init__(self, message: str, status: int, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Unreachable(HttpError):
    """No answer: time-out, lost connection, no route or no such host."""


class ProtocolError(HttpError):
    """A server's headers contradict what was asked, or cannot be read."""


class RangeError(ProtocolError):
    """A server answered a byte-range request with something other than that range."""


class BodyTruncated(RangeError):
    """A body ended before the requested range was complete."""


class BodyExceeded(RangeError):
    """A body was longer than the requested range."""


class RedirectRejected(HttpError):
    """A redirect leads to plain HTTP, or there are too many of them."""


class RetryDelayExceeded(HttpError):
    """A server asks to wait longer than the installer is willing to."""


class NoSpace(InstallError):
    """The target file system cannot hold the installation."""


class Locked(InstallError):
    """Another process holds the lock of this install path."""


class UnsafePath(InstallError):
    """A path that the installer would write is a symlink or not what it should be."""


class PromotionUnsupported(InstallError):
    """The file system cannot swap two directories atomically, so nothing was replaced."""


class StateError(InstallError):
    """The state of an earlier, unfinished install does not fit what was asked for."""


class StateMissing(StateError):
    """There is no saved state to continue or discard."""


class StateCorrupt(StateError):
    """The saved state contradicts itself; it can only be discarded."""


class StateIncompatible(StateError):
    """The saved state belongs to another request, or a decision about it is needed."""


@dataclass(frozen=True)
class Damage:
    """A file of an install that is not as the manifest says.

    `name` is its path in the install, `problem` says what differs, `detail` the same as the end of
    a sentence that begins with the name.
    """

    name: str
    problem: Literal["missing", "size", "hash", "unreadable"]
    detail: str


class StoreError(MferenceError):
    """A `.gturbo` directory cannot be used.

    `damaged` are the files whose bytes are the reason: all of them if a verification found them,
    the first one if the install was being opened; none if the reason is another.
    """

    damaged: tuple[Damage, ...] = ()


class PartialInstall(StoreError):
    """The directory has no manifest: the installation never finished."""


class ManifestError(StoreError):
    """`manifest.json` cannot be accepted."""


class NotGturbo(ManifestError):
    """The manifest's magic is not `GTURBO`."""


class UnsupportedVersion(ManifestError):
    """The manifest's major version is not 1."""


class UnknownFlag(ManifestError):
    """The manifest sets a format flag this reader does not know; `name` is the flag."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class ArchMismatch(ManifestError):
    """An architecture value differs from the pinned entry's baseline; `field` is its key."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class StrideNotAligned(ManifestError):
    """The expert stride is not a multiple of the page size."""


class UnpinnedModel(ManifestError):
    """The install matches no pinned entry and `allow_unpinned` was not given."""


class LayoutError(StoreError):
    """`packed_experts/layout.json` cannot be accepted."""


class IndexCorrupt(StoreError):
    """The resident index of `model_weights.bin` cannot be accepted."""


class TensorNotFound(StoreError):
    """A tensor that the family needs is not in the resident index."""


class MissingFile(StoreError):
    """A file that the manifest must list, or lists, is missing; `name` is its path."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class IntegrityError(StoreError):
    """A file's bytes do not have the SHA-256 the manifest records."""


class ReceiptInvalid(StoreError):
    """`verified-install.json` does not vouch for this directory."""


class DeviceError(MferenceError):
    """A device refused or failed an operation."""


class ExpertFillError(DeviceError):
    """A routed expert could not be read from its layer file."""


class GenerationError(MferenceError):
    """A generation request cannot be carried out as asked."""


class ContextLengthError(GenerationError):
    """The prompt does not leave room for one token in the context window."""


class ConfigError(GenerationError):
    """A generation setting is outside its range."""


class TemplateError(MferenceError):
    """The chat template is missing, not allowed, or failed on these messages."""


class ToolCallError(MferenceError):
    """The model wrote a tool call that cannot be parsed or names an unknown tool."""


class TraceError(MferenceError):
    """A routing trace cannot be written or read."""
