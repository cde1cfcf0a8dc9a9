"""S3, Google Cloud Storage and Azure on this machine: the servers of tests that write remote datasets.

| | server | conditional create | what it lacks |
|---|---|---|---|
| `s3://` | moto, from PyPI | `If-None-Match`, one winner | verifies no signatures |
| `gs://` | moto behind `GcsProxy`, which translates the condition and adds generations | `x-goog-if-generation-match`, one winner | credentials; it is not the work of others alone |
| `az://` | Azurite, Microsoft's emulator, from npm | `If-None-Match`, one winner | managed identities |

Of the emulators of Google Cloud Storage, `gcp-storage-emulator` on PyPI (2026.7.19) has the JSON interface, and of the XML
interface, which `object_store` uses, no listing, no multipart upload and no conditions; `fake-gcs-server` and Google's own
testbench are on no package registry. Google's XML interface is that of S3 with other names for what S3 did not have at
the time, so moto answers, and the names are translated here.
"""

import base64
import contextlib
import email.utils
import hmac
import http.client
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from remote_servers import Proxy, serving

#: The account that every Azurite has; it is in Microsoft's documentation.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

TOOLS = pathlib.Path(__file__).resolve().parents[2] / ".tools"


class Cloud(NamedTuple):
    """A running server with a bucket `lab`."""

    scheme: str
    #: Host and port.
    authority: str
    #: Tells the process which server to use, and where.
    use: Callable[[pytest.MonkeyPatch, str], None]

    def url(self, name: str) -> str:
        """Return the URL of a dataset in the bucket, which the servers of moto share."""
        return f"{self.scheme}://lab/{self.scheme}/{name}"

    @contextlib.contextmanager
    def faulty(self, patch: pytest.MonkeyPatch, **settings: Any) -> Iterator[type[Proxy]]:
        """Use the server through a proxy with these settings."""
        with serving(Proxy, upstream=self.authority, **settings) as proxy:
            self.use(patch, proxy.url)
            yield proxy.RequestHandlerClass
        self.use(patch, f"http://{self.authority}")


def use_s3(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Name the S3 server."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test-key",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        patch.setenv(name, value)


def use_gcs(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Name the server of Google Cloud Storage as its own clients do."""
    patch.setenv("STORAGE_EMULATOR_HOST", endpoint)


def use_azure(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Name Azurite, with its well-known account."""
    patch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    patch.setenv("AZURITE_BLOB_STORAGE_URL", endpoint)


class GcsProxy(Proxy):
    """Google's XML interface, in front of an S3 server."""

    #: Of each path, the number of its last put.
    generations: dict[str, int]

    def request_path(self) -> str:
        # Google's keys have no folders: slashes are escaped.
        return self.path.replace("%2F", "/")

    def request_headers(self) -> dict[str, str]:
        headers = {name.lower(): value for name, value in super().request_headers().items()}
        match = headers.pop("x-goog-if-generation-match", None)
        assert match in (None, "0"), "objects are created under the condition that there are none"
        headers["authorization"] = (
            "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request"
        )
        return headers | ({} if match is None else {"If-None-Match": "*"})

    def answer_headers(self, answer: http.client.HTTPResponse) -> dict[str, str]:
        path = self.path.split("?")[0]
        if self.command == "PUT" and answer.status < 300:
            self.generations[path] = self.generations.get(path, 0) + 1
        return super().answer_headers(answer) | {
            "x-goog-generation": str(self.generations.get(path, 0))
        }


@contextlib.contextmanager
def moto_server() -> Iterator[Any]:
    """Run moto with a bucket; give a client of boto3."""
    server = pytest.importorskip("moto.server", reason='S3 needs moto: pip install "moto[server]"')
    import boto3  # noqa: PLC0415 (only with moto)

    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    authority = "{}:{}".format(*running.get_host_and_port()).replace("0.0.0.0", "127.0.0.1")
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{authority}",
        region_name="us-east-1",
        aws_access_key_id="test-key",
        aws_secret_access_key="test-secret",
    )
    client.create_bucket(Bucket="lab")
    client.authority = authority
    try:
        yield client
    finally:
        running.stop()


@contextlib.contextmanager
def s3() -> Iterator[Cloud]:
    """Run an S3 server."""
    with moto_server() as client:
        yield Cloud("s3", client.authority, use_s3)


@contextlib.contextmanager
def gcs() -> Iterator[Cloud]:
    """Run a server of Google Cloud Storage."""
    with (
        moto_server() as client,
        serving(GcsProxy, upstream=client.authority, generations={}) as server,
    ):
        yield Cloud("gs", server.url.removeprefix("http://"), use_gcs)


@contextlib.contextmanager
def azure() -> Iterator[Cloud]:
    """Run Azurite."""
    program = TOOLS / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.exists():
        left = TOOLS / "no-azurite"
        why = left.read_text("utf-8").strip() if left.exists() else "run `make setup`"
        pytest.skip(f"Azure needs Azurite, which is not installed: {why}")
    arguments = ["--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    command = ["node", program, *arguments]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as server,
    ):
        try:
            line = next(line for line in server.stdout if "listens on" in line)
            authority = line.split("http://")[1].strip()
            make_container(authority)
            yield Cloud("az", authority, use_azure)
        finally:
            server.kill()


def make_container(authority: str) -> None:
    """Make the container, with a request that is signed as Azure's documentation says."""
    date = email.utils.formatdate(usegmt=True)
    path = f"/{AZURE_ACCOUNT}/lab"
    signed = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n/{AZURE_ACCOUNT}{path}\nrestype:container"
    text = "PUT" + 12 * "\n" + signed
    mac = hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), "sha256")
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2021-08-06",
        "Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(mac).decode()}",
    }
    client = http.client.HTTPConnection(authority, timeout=30)
    client.request("PUT", f"{path}?restype=container", headers=headers)
    assert client.getresponse().status == 201
    client.close()


CLOUDS = {"s3": s3, "gs": gcs, "az": azure}
