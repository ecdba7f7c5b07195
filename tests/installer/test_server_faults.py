"""Installing from servers that misbehave: either it completes, or it says why and goes on later."""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trustme

from mference import errors
from mference.families import ENTRIES
from mference.installer import Limits
from mference.installer.installer import carry_out
from mference.installer.journal import read_journal
from mference.installer.paths import prepared_paths
from mference.installer.run import Run
from tests.installer.contents import contents
from tests.installer.server import Fault, RangeServer, Unrest, request_for, serve, tensors
from tests.installer.toys import write_source

CHUNK = 6000
ALWAYS = 10**6
SHORT = 0.3
DATES = (
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "Thursday, 01-Jan-70 00:00:00 GMT",
    "Thu Jan  1 00:00:00 1970",
)

# A fault that passes, met once by a request for tensors.
PASSING = {
    "the connection is closed before the answer": Fault(stop="start"),
    "the connection is reset before the answer": Fault(stop="start", then="reset"),
    "the connection is closed in the headers": Fault(stop="headers"),
    "the connection is reset in the headers": Fault(stop="headers", then="reset"),
    "the connection is closed before the body": Fault(stop="body", at=0),
    "the connection is closed in the body": Fault(stop="body"),
    "the connection is reset in the body": Fault(stop="body", then="reset"),
    "no answer begins": Fault(stop="start", then="stall"),
    "the headers stall": Fault(stop="headers", then="stall"),
    "the body stalls": Fault(stop="body", then="stall"),
    "the answer comes late": Fault(delay=0.05),
    "more than the answer follows on the connection": Fault(extra=b"more"),
    "the rate is limited": Fault(status=429),
    "the rate is limited for no time": Fault(status=429, headers={"Retry-After": "0"}),
    **{
        f"the server is busy until {date}": Fault(status=503, headers={"Retry-After": date})
        for date in DATES
    },
    **{f"the status is {n}": Fault(status=n) for n in (408, 500, 502, 503, 504)},
}  # fmt: skip

# A fault that ends the install, the class of the error, and a part of its text.
ENDING: dict[str, tuple[Fault, type[errors.InstallError], str]] = {
    "another range": (
        Fault(headers={"Content-Range": "bytes {last}-{last}/{size}"}), errors.RangeError, "bytes"
    ),
    "a range of another file": (
        Fault(headers={"Content-Range": "bytes {first}-{last}/7"}), errors.RangeError, "/7"
    ),
    "no range": (Fault(headers={"Content-Range": None}), errors.RangeError, "Content-Range"),
    "a shorter length": (
        Fault(headers={"Content-Length": "5"}), errors.RangeError, "Content-Length is 5"
    ),
    "no length": (
        Fault(headers={"Content-Length": None}, stop="body"), errors.RangeError, "Content-Length"
    ),
    "a compressed body": (
        Fault(headers={"Content-Encoding": "gzip"}), errors.RangeError, "compressed"
    ),
    "the whole file": (Fault(status=200, whole=True), errors.HttpStatusError, "status 200"),
    "a longer body": (Fault(extra=b"more", chunked=True), errors.BodyExceeded, "more than"),
    "plain HTTP": (
        Fault(status=302, headers={"Location": "http://127.0.0.1:1{path}"}),
        errors.RedirectRejected, "plain HTTP",
    ),
    "nothing for hours": (
        Fault(status=503, headers={"Retry-After": "3601"}), errors.RetryDelayExceeded, "3601"
    ),
    "nothing until next century": (
        Fault(status=429, headers={"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}),
        errors.RetryDelayExceeded, "2100",
    ),
    "nothing until whenever": (
        Fault(status=503, headers={"Retry-After": "soon"}), errors.ProtocolError, "soon"
    ),
    **{f"status {n}": (Fault(status=n), errors.HttpStatusError, f"status {n}")
       for n in (401, 403, 404, 410, 416)},
}  # fmt: skip

# A fault that would pass, but does not: every request for tensors meets it.
LASTING: dict[str, tuple[Fault, type[errors.InstallError]]] = {
    "drops every connection": (Fault(stop="start"), errors.Unreachable),
    "resets every connection": (Fault(stop="start", then="reset"), errors.Unreachable),
    "never gets beyond its headers": (Fault(stop="headers"), errors.Unreachable),
    "never sends a body": (Fault(stop="body", at=0), errors.BodyTruncated),
    "is always busy": (Fault(status=503), errors.HttpStatusError),
    "always limits the rate": (
        Fault(status=429, headers={"Retry-After": "0"}), errors.HttpStatusError
    ),
}  # fmt: skip

# A fault of the answer to a HEAD request, before anything is saved.
METADATA: dict[str, tuple[Fault, str, type[errors.InstallError]]] = {
    "a shard shorter": (Fault(headers={"X-Linked-Size": "900"}), "s", errors.InstallError),
    "a shard longer": (Fault(headers={"X-Linked-Size": "99999"}), "s", errors.InstallError),
    "a tokenizer shorter": (
        Fault(headers={"X-Linked-Size": "5"}), "config.json", errors.InstallError
    ),
    "no size": (Fault(headers={"Content-Length": None}), "config.json", errors.ProtocolError),
    "another commit": (
        Fault(headers={"X-Repo-Commit": "d" * 40}), ".safetensors", errors.ProtocolError
    ),
    "no byte ranges": (
        Fault(headers={"Accept-Ranges": "none"}), ".safetensors", errors.ProtocolError
    ),
    "no shard": (Fault(status=404), ".safetensors", errors.CheckpointError),
    "no tokenizer": (Fault(status=404), "tokenizer.json", errors.CheckpointError),
    "no access": (Fault(status=403), "config.json", errors.HttpStatusError),
}  # fmt: skip


def cases(table: Mapping[str, Any]) -> list[Any]:
    """The rows of a table, by turns with one connection and with three."""
    rows = ((row if isinstance(row, tuple) else (row,)) for row in table.values())
    return [
        pytest.param(*row, 1 + 2 * (i % 2), id=name)
        for i, (name, row) in enumerate(zip(table, rows, strict=True))
    ]


@dataclass
class Place:
    """A server that holds a toy, where it is installed, and what a quiet install of it is."""

    server: RangeServer
    folder: Path
    quiet: dict[str, bytes]
    ranges: int
    made: int = 0
    run: Run = field(init=False)

    def begin(self, connections: int = 1, *, stalls: bool = False) -> None:
        """Prepare a fresh install at another path; its patience is short if the server stalls."""
        self.server.forget()
        self.made += 1
        self.run = Run(
            self.server.source(timeout=SHORT if stalls else 10, connections=connections),
            ENTRIES["demo"],
            prepared_paths(self.folder / f"{self.made}.gturbo"),
            allow_unpinned=True,
            limits=Limits(chunk=CHUNK, connections=connections, gather=0),
        )

    def carry_out(self) -> None:
        try:
            carry_out(self.run)
        finally:
            self.run.source.close()

    def check_complete(self) -> None:
        """The install is the quiet one, every range arrived once, and nothing else is left."""
        final = self.run.paths.final
        assert contents(final) == self.quiet
        assert sorted(p.name for p in final.parent.glob(f"{final.name}*")) == [
            final.name, f"{final.name}.install.lock"
        ]  # fmt: skip
        arrived = sorted((a.name, a.first, a.end) for a in self.server.delivered if a.tensors)
        for one, next_ in pairwise(arrived):
            assert one[0] != next_[0] or one[2] <= next_[1]

    def resume(self) -> None:
        """Go on with a server that behaves: only what is not recorded is fetched."""
        recorded = len(read_journal(self.run.paths.checkpoint).completed)
        self.server.forget()
        self.run.source, self.run.resume = self.server.source(), True
        self.carry_out()
        self.check_complete()
        assert sum(asked.tensors for asked in self.server.asked) == self.ranges - recorded


def place_of(server: RangeServer, folder: Path) -> Place:
    place = Place(server, folder, {}, 0)
    place.begin()
    place.carry_out()
    place.quiet = contents(place.run.paths.final)
    place.ranges = sum(asked.tensors for asked in server.asked)
    assert place.ranges > 5
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("faults")
    with serve(write_source(folder / "source")) as server:
        yield place_of(server, folder)


@pytest.fixture(scope="module")
def secure(tmp_path_factory) -> Iterator[Place]:
    """The same over TLS, since no payload is fetched after a redirect to anything else."""
    folder = tmp_path_factory.mktemp("secure")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    with serve(write_source(folder / "source"), context) as server:
        server.certificate = folder / "authority.pem"
        yield place_of(server, folder)


@pytest.mark.parametrize(("fault", "connections"), cases(PASSING))
def test_an_install_completes_although(place: Place, fault: Fault, connections: int):
    place.begin(connections, stalls=fault.then == "stall")
    place.server.arm(fault, skip=2, times=2)
    place.carry_out()
    place.check_complete()
    assert place.server.armed[0].times == 0


@pytest.mark.parametrize("skip", range(4))
def test_an_install_completes_although_each_small_file_breaks_off(place: Place, skip: int):
    place.begin()
    for fault in list(PASSING.values())[skip : skip + 2]:
        for name in ("index.json", "config.json", ".safetensors", "tokenizer.json"):
            place.server.arm(fault, request_for("HEAD", name))
            place.server.arm(fault, request_for("GET", name))
    place.carry_out()
    place.check_complete()
    assert not any(armed.times for armed in place.server.armed)


@pytest.mark.parametrize(("fault", "kind", "says", "connections"), cases(ENDING))
def test_an_install_ends_with_a_named_error_and_goes_on_later_if_the_answer_is(
    place: Place, fault: Fault, kind: type[errors.InstallError], says: str, connections: int
):
    place.begin(connections)
    place.server.arm(fault, skip=3, times=ALWAYS)
    check_refusal(place, kind, says)
    place.resume()


@pytest.mark.parametrize(("fault", "kind", "connections"), cases(LASTING))
def test_an_install_gives_up_and_goes_on_later_if_the_server(
    place: Place, fault: Fault, kind: type[errors.InstallError], connections: int
):
    place.begin(connections)
    place.server.arm(fault, skip=3, times=ALWAYS)
    check_refusal(place, kind)
    place.resume()


def check_refusal(place: Place, kind: type[errors.InstallError], says: str = "") -> None:
    """The install ends with this very class, keeps its state and says how to go on."""
    with pytest.raises(errors.InstallError) as caught:
        place.carry_out()
    assert type(caught.value) is kind
    assert says in str(caught.value)
    assert "--resume" in caught.value.__notes__[0]
    assert not place.run.paths.final.exists()
    assert place.run.paths.partial.is_dir()


@pytest.mark.parametrize("name", ["another range", "the whole file", "a longer body", "status 404"])
def test_no_tensor_is_fetched_again_after_the_tokenizer_failed(place: Place, name: str):
    fault, *_ = ENDING[name]
    place.begin()
    place.server.arm(fault, request_for("GET", "tokenizer.json"), times=ALWAYS)
    with pytest.raises(errors.InstallError) as caught:
        place.carry_out()
    assert "--resume" in caught.value.__notes__[0]
    assert len(read_journal(place.run.paths.checkpoint).completed) == place.ranges
    place.resume()


@pytest.mark.parametrize(("fault", "name", "kind"), METADATA.values(), ids=METADATA.keys())
def test_an_install_leaves_nothing_if_the_server_announces(place: Place, fault, name, kind):
    place.begin()
    place.server.arm(fault, request_for("HEAD", name), skip=name == ".safetensors", times=ALWAYS)
    with pytest.raises(kind):
        place.carry_out()
    paths = place.run.paths
    assert list(paths.final.parent.glob(f"{paths.final.name}*")) == [paths.lock]
    assert not any(asked.tensors for asked in place.server.asked)
    place.server.forget()
    place.run.source = place.server.source()
    place.carry_out()
    place.check_complete()


def test_a_body_that_breaks_off_is_continued_at_the_byte_where_it_broke(place: Place):
    place.begin()
    place.server.arm(Fault(stop="body", at=0.25), skip=1)
    place.server.arm(Fault(stop="body", at=0.5), skip=1)
    place.carry_out()
    place.check_complete()
    asked = [a for a in place.server.asked if a.tensors][1:]
    (broken, more, rest), length = asked[:3], asked[0].end - asked[0].first
    assert more.first == broken.first + int(length * 0.25)
    assert rest.first == more.first + int((more.end - more.first) * 0.5)
    assert broken.end == more.end == rest.end


def test_a_file_that_changes_while_it_is_read_is_noticed(place: Place):
    place.begin()
    place.server.arm(Fault(headers={"ETag": '"one"'}), times=3)
    place.server.arm(Fault(headers={"ETag": '"other"'}), times=ALWAYS)
    check_refusal(place, errors.RangeError, "ETag")
    place.server.forget()
    place.run.source, place.run.resume = place.server.source(), True
    place.carry_out()
    place.check_complete()


@pytest.mark.parametrize("connections", [2, 4, 16])
def test_answers_in_any_order_make_the_same_install(place: Place, connections: int):
    place.begin(connections)
    delays = iter([0.06, 0.0, 0.04, 0.01, 0.05, 0.02, 0.03] * 10)
    place.server.faults = lambda asked: Fault(delay=next(delays)) if asked.tensors else None
    place.carry_out()
    place.check_complete()


@pytest.mark.parametrize("seed", range(8))
def test_a_bad_line_does_not_change_the_install_and_needs_no_second_try(place, seed):
    stalls = seed % 4 == 0
    place.begin(connections=1 + 3 * (seed % 2), stalls=stalls)
    place.server.faults = Unrest(seed, share=0.5, stall=stalls)
    place.carry_out()
    place.check_complete()
    assert len(place.server.asked) > place.ranges + 8


@pytest.mark.parametrize("place_to", ["{path}", "https://localhost:{port}{path}"])
def test_redirects_are_followed_to_this_host_and_another(secure: Place, place_to: str):
    secure.begin(2)
    port = secure.server.base.rsplit(":", 1)[1]
    location = place_to.replace("{port}", port)
    secure.server.arm(Fault(status=302, headers={"Location": location}), times=3)
    secure.carry_out()
    secure.check_complete()


def test_redirects_in_a_circle_are_refused(secure: Place):
    secure.begin()
    fault = Fault(status=307, headers={"Location": "{path}"})
    secure.server.arm(fault, tensors, skip=2, times=ALWAYS)
    check_refusal(secure, errors.RedirectRejected, "more than 5")
    secure.resume()
