"""Builds docs/operate/Containerfile and runs it as the page "Running a server" says.

    python3 tests/wheel/container.py                # the wheels are in target/wheels
    python3 tests/wheel/container.py --debian       # without a registry: the base image is made from Debian's packages

Needs podman, and `sbp` in .venv; with --debian also mmdebstrap. It removes what it makes, but for the base image.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SBP = ROOT / ".venv/bin/sbp"
BASE = "docker.io/library/python:3.11-slim"
#: What the base image has that matters here: CPython 3.11 as `python`, and pip that installs into it.
LIKE_THE_BASE = "ln -s /usr/bin/python3 /usr/local/bin/python; rm -f /usr/lib/python3*/EXTERNALLY-MANAGED"


def run(*command: str | Path, timeout: float = 300, given: str | None = None) -> str:
    """What a command prints; ends the program with its errors if it fails."""
    ran = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=timeout, cwd=ROOT, input=given
    )
    if ran.returncode != 0:
        sys.exit(f"failed ({ran.returncode}): {' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def make_base() -> None:
    """An image under the name that the Containerfile begins with, of Debian's packages."""
    if shutil.which("mmdebstrap") is None:
        sys.exit("mmdebstrap is missing: apt-get install mmdebstrap")
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "root.tar"
        packages = "--include=python3,python3-pip"
        run("mmdebstrap", "--quiet", "--variant=minbase", packages, "bookworm", archive, timeout=900)
        run("podman", "import", "--quiet", archive, f"{BASE}-debian")
    made = f"FROM {BASE}-debian\nRUN {LIKE_THE_BASE}\n"
    run("podman", "build", "--quiet", "--pull=never", "--tag", BASE, "-", given=made)


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Image:
    """The image, a volume, and the files that a server is given: certificates and names with their tokens."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.volume, self._place = name, name, place
        self._port = free_port()
        run(SBP, "tls", "dev", place / "tls")
        names, grants = place / "names.jsonl", ("read:*", "write:*", "admin:*")
        words = [word for grant in grants for word in ("--allow", grant)]
        (place / "token").write_text(run(SBP, "token", "create", "tester", *words, "--auth", names))
        # The user of the image reads them; it has another number than whoever runs this.
        for path in (names, place / "tls/server.key", place / "tls/server.crt"):
            path.chmod(0o644)
        for path in (place, place / "tls"):
            path.chmod(0o755)

    def start(self) -> str:
        """Starts a container on the volume; its name, once it says that it is healthy."""
        container = f"{self.name}-{uuid.uuid4().hex[:8]}"
        run(
            *("podman", "run", "--detach", "--name", container, "--volume", f"{self.volume}:/var/lib/sbp"),
            *(
                "--volume",
                f"{self._place}:/etc/sbp/secrets:ro",
                "--publish",
                f"127.0.0.1:{self._port}:12378",
                self.name,
            ),
            *("serve", "--listen", "0.0.0.0:12378", "--advertise", f"127.0.0.1:{self._port}"),
            *("--tls-cert", "/etc/sbp/secrets/tls/server.crt", "--tls-key", "/etc/sbp/secrets/tls/server.key"),
            *("--auth", "/etc/sbp/secrets/names.jsonl"),
        )
        deadline = time.monotonic() + 60
        while subprocess.run(["podman", "healthcheck", "run", container], capture_output=True, timeout=60).returncode:
            if time.monotonic() > deadline:
                sys.exit(f"it is not healthy within a minute:\n{self.log(container)}")
            time.sleep(0.2)
        return container

    def client(self, *words: str, given: str | None = None) -> str:
        """What the command on this machine prints, through TLS and with the token."""
        return run(
            SBP, *words, "--servers", f"sbps://127.0.0.1:{self._port}", "--tls-ca", self._place / "tls/ca.crt",
            "--token-file", self._place / "token", given=given,
        )  # fmt: skip

    def stop(self, container: str) -> None:
        """SIGTERM, on which the server has to end by itself and without an error."""
        run("podman", "stop", "--time", "30", container)
        code = run("podman", "inspect", "--format", "{{.State.ExitCode}}", container).strip()
        if code != "0" or '"message":"ended"' not in self.log(container):
            sys.exit(f"SIGTERM did not end it cleanly, exit code {code}:\n{self.log(container)}")

    def log(self, container: str) -> str:
        """What the server has logged."""
        ran = subprocess.run(["podman", "logs", container], capture_output=True, text=True, timeout=60)
        return ran.stdout + ran.stderr


def check(image: Image) -> None:
    """Two lives of a server on one volume."""
    container = image.start()
    user = run("podman", "exec", container, "id", "-u").strip()
    assert user == "10001", f"the server runs as user {user}"
    mode = run("podman", "exec", container, "stat", "--format", "%U %a", "/var/lib/sbp").strip()
    assert mode == "sbp 700", mode
    stranger = subprocess.run(
        ["podman", "exec", container, "sbp", "ping", "--timeout", "5s"], capture_output=True, text=True, timeout=60
    )
    assert stranger.returncode != 0, "a client without TLS and a token was served"
    image.client("stream", "create", "orders")
    image.client("append", "orders", given="first\nsecond\n")
    image.stop(container)
    run("podman", "rm", container)
    container = image.start()
    recovered = next(json.loads(line) for line in image.log(container).splitlines() if '"recovered"' in line)
    assert recovered["ended_cleanly"] is True, recovered
    rows = [line.split()[-1] for line in image.client("fetch", "orders").splitlines()]
    assert rows == ["first", "second"], rows
    image.stop(container)


def main() -> None:
    """Build, run, remove."""
    parser = argparse.ArgumentParser(
        prog="container.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--wheels", default="target/wheels", help="directory with the wheel, below the repository's root"
    )
    parser.add_argument("--debian", action="store_true", help="make the base image from Debian's packages")
    given = parser.parse_args()
    if shutil.which("podman") is None:
        sys.exit("podman is missing: apt-get install podman")
    if not SBP.exists():
        sys.exit("the command is missing in .venv: make install")
    if not list((ROOT / given.wheels).glob("sbp_native-*.whl")):
        sys.exit(f"there is no wheel in {given.wheels}: make wheel")
    if given.debian:
        make_base()
    name = f"sbp-test-{uuid.uuid4().hex[:8]}"
    build = ["podman", "build", "--quiet", "--format", "docker", *(["--pull=never"] if given.debian else [])]
    try:
        run(*build, "-t", name, "-f", "docs/operate/Containerfile", "--build-arg", f"WHEELS={given.wheels}", ".")
        with tempfile.TemporaryDirectory() as place:
            check(Image(name, Path(place)))
    finally:
        for command in (
            ["podman", "ps", "--all", "--quiet", "--filter", f"ancestor={name}"],
            ["podman", "volume", "rm", "--force", name],
            ["podman", "rmi", "--force", name],
        ):
            ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
            for container in ran.stdout.split() if command[1] == "ps" else ():
                subprocess.run(["podman", "rm", "--force", container], capture_output=True, timeout=120)
    print("built and run: TLS, a token, healthy, SIGTERM, a second life on its volume, not root")


if __name__ == "__main__":
    main()
