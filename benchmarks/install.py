"""What installing Gemma 4 26B-A4B costs beside a plain download of the same bytes.

    python benchmarks/install.py [--at DIR] [--source-at DIR] [--pairs 3] [--connections 1 2 4 8]

Writes a source checkpoint of full size with random weights (15 GB in files as mlx-lm writes them:
5 GiB each, tensors in no order) and serves it on loopback from a process of its own. Each pair
downloads it plainly and then installs it, once for each number of connections. Plain is the fastest
of some ways to write the same files, synced to the disk, with one SHA-256 over their bytes; which
that is, is found first. Medians over the pairs. `time / plain` is the time a byte takes when it is
installed over that of the plain download in the same pair; `peak` is the resident memory of the
installing process at its highest, its libraries included.

Before each timing all writes are synced and, for root, the page cache is dropped. With `--source-at
/dev/shm` the server reads from memory, and the disk has nothing to do but to write, as it is with a
source on the network. Everything written is removed at the end; it is about 30 GB at most.
"""

import argparse
import hashlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from statistics import median

from loopback import SIZES, served, write_checkpoint

from mference.families import pinned_entry

COMMAND = [str(Path(sys.executable).with_name("mference"))]
BLOCK = 1 << 20
ENVIRONMENT = {**os.environ, "NO_PROXY": "127.0.0.1", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Download:
    """Files to download: the server's port, and the bytes of each file by its name."""

    port: int
    files: dict[str, int]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(self.files.values())

    def url(self, name: str) -> str:
        """The address of a file."""
        return f"http://127.0.0.1:{self.port}/{name}"


@dataclass(frozen=True)
class Cost:
    """One finished install: seconds, processor seconds, the most bytes of resident memory."""

    seconds: float
    processor: float
    peak: int


# Plain downloads: each writes the files into a folder and returns the hex SHA-256 of each


def read_file(wanted: Download, name: str, target: Path | None) -> str:
    """Download one file by one connection: it is hashed in a second thread. None writes nothing."""
    digest = hashlib.sha256()
    buffers: Queue[bytearray] = Queue()
    read: Queue[tuple[bytearray, int] | None] = Queue()
    for _ in range(8):
        buffers.put(bytearray(BLOCK))

    def hash_all() -> None:
        while (piece := read.get()) is not None:
            digest.update(memoryview(piece[0])[: piece[1]])
            buffers.put(piece[0])

    hasher = threading.Thread(target=hash_all)
    connection = http.client.HTTPConnection("127.0.0.1", wanted.port)
    connection.request("GET", f"/{name}")
    answer = connection.getresponse()
    with ExitStack() as stack:
        file = stack.enter_context(target.open("wb", buffering=0)) if target else None
        if file:
            hasher.start()
        try:
            buffer = buffers.get()
            while count := answer.readinto(buffer):
                if not file:
                    continue
                file.write(memoryview(buffer)[:count])
                read.put((buffer, count))
                buffer = buffers.get()
        finally:
            read.put(None)
            if file:
                hasher.join()
            connection.close()
    return digest.hexdigest()


def python(wanted: Download, folder: Path, connections: int = 1) -> list[str]:
    with ThreadPoolExecutor(connections) as pool:
        return list(pool.map(lambda name: read_file(wanted, name, folder / name), wanted.files))


def python_parallel(wanted: Download, folder: Path) -> list[str]:
    return python(wanted, folder, len(wanted.files))


def curl_parallel(wanted: Download, folder: Path) -> list[str]:
    """All files by one curl, each hashed as it grows."""
    command = ["curl", "--fail", "--parallel", "--parallel-immediate", "--no-progress-meter"]
    for name in wanted.files:
        (folder / name).touch()
        command += ["--output", str(folder / name), wanted.url(name)]
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as curl,
        ThreadPoolExecutor(len(wanted.files)) as pool,
    ):
        try:
            paths = [(folder / name, size) for name, size in wanted.files.items()]
            return list(pool.map(lambda p: hash_growing(curl, *p), paths))
        finally:
            curl.kill()


def hash_growing(writer: subprocess.Popen[bytes], path: Path, size: int) -> str:
    digest = hashlib.sha256()
    buffer = bytearray(BLOCK)
    with path.open("rb", buffering=0) as file:
        while file.tell() < size:
            ended = writer.poll() is not None
            count = file.readinto(buffer)
            digest.update(memoryview(buffer)[:count])
            if ended and not count:
                raise SystemExit(f"curl ended before {path.name} was complete")
            if not count:
                time.sleep(0.002)
    return digest.hexdigest()


def curl_tee(wanted: Download, folder: Path) -> list[str]:
    """A curl for each file, through tee into sha256sum."""
    script = 'set -o pipefail; curl --silent --fail "$1" | tee "$2" | sha256sum'

    def one(name: str) -> str:
        command = ["bash", "-c", script, "bash", wanted.url(name), str(folder / name)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0]

    with ThreadPoolExecutor(len(wanted.files)) as pool:
        return list(pool.map(one, wanted.files))


@contextmanager
def flushing(folder: Path) -> Iterator[None]:
    """A thread sends to the disk what is written, instead of all of it waiting for the end."""
    done = threading.Event()

    def flush() -> None:
        while not done.wait(0.2):
            sync_files(folder)

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        yield
    finally:
        done.set()
        flusher.join()


@dataclass(frozen=True)
class Plain:
    """A way to download plainly, with the programs it needs.

    `flushed` means that files are sent to the disk as they grow.
    """

    download: Callable[[Download, Path], list[str]]
    needs: tuple[str, ...] = ()
    flushed: bool = True


PLAIN = {
    "Python, one connection": Plain(python),
    "Python, a connection a file": Plain(python_parallel),
    "Python, a connection a file, to the disk at the end": Plain(python_parallel, flushed=False),
    "curl --parallel, hashed as files grow": Plain(curl_parallel, ("curl",)),
    "curl, tee, sha256sum, for each file": Plain(curl_tee, ("bash", "curl", "tee", "sha256sum")),
}


# Measuring


def settle() -> None:
    """Nothing is left to write, and where that is allowed nothing is in the page cache."""
    os.sync()
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3")


def sync_files(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def time_plain(name: str, wanted: Download, work: Path) -> tuple[float, list[str]]:
    """Seconds of a plain download, and the digests of its files."""
    with tempfile.TemporaryDirectory(dir=work) as made:
        folder = Path(made)
        settle()
        start = time.perf_counter()
        with flushing(folder) if PLAIN[name].flushed else nullcontext():
            digests = PLAIN[name].download(wanted, folder)
        sync_files(folder)
        return time.perf_counter() - start, digests


def time_install(arguments: list[str], work: Path) -> Cost:
    """An install in a process of its own; its output is removed."""
    output = work / "x.gturbo"
    settle()
    start = time.perf_counter()
    with subprocess.Popen(
        [*COMMAND, "install", *arguments, "--output", str(output)],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            peak = watch(process)
            seconds = time.perf_counter() - start
        finally:
            process.kill()
    for path in work.glob("x.gturbo*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Cost(seconds, peak[1], peak[0])


def watch(process: "subprocess.Popen[str]") -> tuple[int, float]:
    """Peak resident bytes (0 where /proc has none) and processor seconds, once it ended well.

    The kernel's own figure for a child begins with the size of its parent, so it is read meanwhile.
    """
    peak, messages = 0, []
    assert process.stderr is not None
    listener = threading.Thread(target=lambda: messages.append(process.stderr.read()))  # type: ignore[union-attr]
    listener.start()
    while True:
        with suppress(OSError, IndexError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
        ended, code, used = os.wait4(process.pid, os.WNOHANG)
        if ended:
            process.returncode = os.waitstatus_to_exitcode(code)
            break
        time.sleep(0.02)
    listener.join()
    if process.returncode:
        raise SystemExit(f"the install failed:\n{messages[0]}")
    return peak, used.ru_utime + used.ru_stime


def planned_download(arguments: list[str], work: Path) -> int:
    """Bytes that an install reads from the source."""
    command = [*COMMAND, "install", *arguments, "--dry-run", "--json"]
    result = subprocess.run(
        [*command, "--output", str(work / "x.gturbo")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SystemExit(f"the install cannot be planned:\n{result.stderr}")
    return int(json.loads(result.stdout)["download"])


def measure(port: int, source: Path, work: Path, connections: list[int], pairs: int) -> None:
    """Print both tables."""
    names = sorted(path.name for path in source.glob("*.safetensors"))
    wanted = Download(port, {name: (source / name).stat().st_size for name in names})
    arguments = ["--source", wanted.url(""), "--model", "gemma4", "--allow-unpinned"]
    download = planned_download(arguments, work)
    settle()
    start = time.perf_counter()
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: read_file(wanted, name, None), names))
    alone = wanted.size / 1e9 / (time.perf_counter() - start)
    print(f"\nThe server alone, nothing written or hashed: {alone:.2f} GB/s\n")

    print("| plain download | GB/s |\n| --- | ---: |")
    found = {}
    for name, way in PLAIN.items():
        if not all(map(shutil.which, way.needs)):
            continue
        found[name] = time_plain(name, wanted, work)
        print(f"| {name} | {wanted.size / 1e9 / found[name][0]:.3f} |", flush=True)
    fastest = min(found, key=lambda name: found[name][0])
    if any(digests != found[fastest][1] for _, digests in found.values()):
        raise SystemExit("two plain downloads differ")

    plain, installs = [], {n: list[Cost]() for n in connections}
    for pair in range(pairs):
        plain.append(time_plain(fastest, wanted, work)[0])
        for n, costs in installs.items():
            costs.append(time_install([*arguments, "--connections", str(n)], work))
            print(f"pair {pair + 1}: plain {plain[-1]:.1f} s, install {costs[-1]}", file=sys.stderr)
    print("\n| | connections | s | GB/s | time / plain | processor s | peak MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    seconds = median(plain)
    print(f"| {fastest} | | {seconds:.1f} | {wanted.size / 1e9 / seconds:.3f} | 1 | | |")
    for n, costs in installs.items():
        seconds = median(cost.seconds for cost in costs)
        ratio = median(c.seconds / p for c, p in zip(costs, plain, strict=True))
        print(
            f"| install | {n} | {seconds:.1f} | {download / 1e9 / seconds:.3f} "
            f"| {ratio * wanted.size / download:.2f} "
            f"| {median(cost.processor for cost in costs):.1f} "
            f"| {median(cost.peak for cost in costs) / 1e6:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--at", type=Path, default=Path(), help="where to download and install to")
    parser.add_argument("--source-at", type=Path, help="where the source is written, if elsewhere")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 2, 4, 8])
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _: sys.exit(128 + caught))
    size = SIZES[options.size]
    with (
        tempfile.TemporaryDirectory(dir=options.at, prefix="install-") as work,
        tempfile.TemporaryDirectory(dir=options.source_at or options.at, prefix="source-") as made,
    ):
        source = Path(made)
        start = time.perf_counter()
        write_checkpoint(source, pinned_entry("gemma4").arch, size)
        written = sum(path.stat().st_size for path in source.iterdir())
        print(
            f"A source of {written / 1e9:.2f} GB in {time.perf_counter() - start:.0f} s: ", end=""
        )
        print("python benchmarks/install.py", *sys.argv[1:], flush=True)
        with served(source) as port:
            measure(port, source, Path(work), options.connections, options.pairs)


if __name__ == "__main__":
    main()
