"""A checkpoint on the Hugging Face hub or a mirror of it, at one revision."""

import httpx
from huggingface_hub import constants, get_token, hf_hub_url

from mference.errors import InstallError, SourceMismatch
from mference.installer.address import parse_address
from mference.installer.http_rules import RetryPolicy
from mference.installer.http_source import HttpSource
from mference.installer.paths import check_repo_id
from mference.installer.snapshot import INDEX_NAME

_TOKENS_PAGE = "https://huggingface.co/settings/tokens"


class HubSource(HttpSource):
    """The files of a repository at a revision, a commit, which the server must confirm.

    The server is `base_url`, else what `HF_ENDPOINT` names, else the hub itself. The token is that
    of `huggingface_hub`: `HF_TOKEN`, or the one saved at login. Raises `InstallError` for an
    address that cannot be one, a token that cannot be one, and in offline mode.
    """

    def __init__(
        self,
        repo: str,
        revision: str,
        *,
        base_url: str | None = None,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - immutable
        client: httpx.Client | None = None,
    ) -> None:
        if constants.HF_HUB_OFFLINE:
            raise InstallError(
                f"HF_HUB_OFFLINE is set, so {repo} is not downloaded. Unset it, or name a folder "
                "that holds the checkpoint (--source)."
            )
        self._repo, self._revision = repo, revision
        endpoint = base_url or constants.ENDPOINT
        self._endpoint = parse_address(endpoint, "--base-url" if base_url else "HF_ENDPOINT").base
        super().__init__(
            hub_base(endpoint, repo, revision),
            commit=revision,
            token=_token(),
            policy=policy,
            client=client,
        )

    @property
    def description(self) -> str:
        """The repository's page and the start of the revision."""
        return f"{self._endpoint}/{self._repo} at revision {self._revision[:7]}"

    def size(self, name: str, *, ranged: bool = False) -> int | None:
        """As `HttpSource.size`; `SourceMismatch` if the server has not got the revision."""
        found = super().size(name, ranged=ranged)
        if found is None and name == INDEX_NAME:
            raise SourceMismatch(
                f"{self._endpoint} has no {self._repo} at revision {self._revision}. Check "
                "HF_ENDPOINT and --base-url, or name another source (--source)."
            )
        if self.commit is not None and self.commit.lower() != self._revision:
            raise SourceMismatch(
                f"{self._endpoint} answers with commit {self.commit} of {self._repo}, not with "
                f"the pinned {self._revision}. Use another mirror (HF_ENDPOINT, --base-url)."
            )
        return found

    def _advice(self, status: int) -> str:
        if status == 401 and self._sends_credentials:
            return (
                f"Your token was not accepted. Make one that may read {self._repo} "
                f"({_TOKENS_PAGE}) and set HF_TOKEN to it."
            )
        if status == 401:
            return (
                f"{self._repo} is private, gated, or not there. Set HF_TOKEN to a token of an "
                f"account that may read it ({_TOKENS_PAGE})."
            )
        if status == 403:
            return (
                f"{self._repo} is gated. Accept its licence at {self._endpoint}/{self._repo}, and "
                "set HF_TOKEN to a token of the account that did."
            )
        return super()._advice(status)


def hub_base(endpoint: str, repo: str, requested: str, commit: str | None = None) -> str:
    """The base address of a hub repository's files, at the commit once that is known.

    Raises `InstallError` for a repository id that cannot be one.
    """
    url = hf_hub_url(
        check_repo_id(repo), INDEX_NAME, revision=commit or requested, endpoint=endpoint.rstrip("/")
    )
    return url.removesuffix(f"/{INDEX_NAME}")


def _token() -> str | None:
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    if token and not (token.isascii() and token.isprintable()):
        raise InstallError(
            "the Hugging Face token has characters that no token has. Set HF_TOKEN to the token "
            f"itself ({_TOKENS_PAGE})."
        )
    return token
