"""Every error the package raises on purpose, in one tree below `MferenceError`.

Each message says what went wrong, where, and what to do next. The C++ core raises the
`DeviceError` branch through the same classes.
"""


class MferenceError(Exception):
    """Base of all errors that mference raises on purpose."""


class InstallError(MferenceError):
    """An installation could not start, continue or finish."""


class SourceMismatch(InstallError):
    """The source is not the pinned checkpoint, or is not a checkpoint of a known family."""


class CheckpointError(InstallError):
    """A source file (safetensors header, index, config) is malformed or inconsistent."""


class RangeError(InstallError):
    """A server answered a byte-range request with something other than that range."""


class NoSpace(InstallError):
    """The target file system cannot hold the installation."""


class Locked(InstallError):
    """Another process holds the lock of this install path."""


class UnsafePath(InstallError):
    """A path that the installer would write is a symlink or not what it should be."""


class StateError(InstallError):
    """The state of an earlier, unfinished install does not fit what was asked for."""


class StoreError(MferenceError):
    """A `.gturbo` directory cannot be used."""


class PartialInstall(StoreError):
    """The directory has no manifest: the installation never finished."""


class ManifestError(StoreError):
    """`manifest.json` cannot be accepted."""


class NotGturbo(ManifestError):
    """The manifest's magic is not `GTURBO`."""


class UnsupportedVersion(ManifestError):
    """The manifest's major version is not 1."""


class UnknownFlag(ManifestError):
    """The manifest sets a format flag this reader does not know."""


class ArchMismatch(ManifestError):
    """An architecture value differs from the pinned entry's baseline."""


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
    """A file that the manifest must list, or lists, is missing."""


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
