"""The labels by which install cases name errors, and the classes that carry them."""

from typing import Any

from mference import errors

LABELS: dict[str, type[Exception]] = {
    "configuration_error": errors.InstallError,
    "busy": errors.Locked,
    "path_unsafe": errors.UnsafePath,
    "state_missing": errors.StateMissing,
    "state_corrupt": errors.StateCorrupt,
    "state_incompatible": errors.StateIncompatible,
    "promotion_unsupported": errors.PromotionUnsupported,
    "http_status": errors.HttpStatusError,
    "body_exceeded": errors.BodyExceeded,
    "body_truncated": errors.BodyTruncated,
    "redirect_rejected": errors.RedirectRejected,
    "retry_delay_exceeded": errors.RetryDelayExceeded,
}
PROTOCOL = (errors.ProtocolError, errors.RangeError)


def outcome(act) -> tuple[str | None, Any]:
    """The label of the error that `act` raises (None: none), and what it returns."""
    try:
        return None, act()
    except errors.InstallError as exc:
        if type(exc) in PROTOCOL:
            return "protocol_invalid", exc
        labels = [label for label, kind in LABELS.items() if type(exc) is kind]
        return (labels or [type(exc).__name__])[0], exc


def accepted(act) -> bool:
    return outcome(act)[0] is None
