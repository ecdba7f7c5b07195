"""The one error of the compiler."""


class CompileError(Exception):
    """The text is what a compiler prints: `file:line: error: what`, with a line for each error."""
