"""What messages advise to do about the saved state of an unfinished install."""

HOW_TO_RESUME = (
    "Continue it with the same command and --resume, or install(..., resume=True) in Python."
)
HOW_TO_DISCARD = (
    "Discard the saved state with 'mference install --discard-partial --output DIR', or "
    "discard_partial in Python, then install again."
)
