"""Blobs in files and in an object store; and what the clients of S3 that are installed take for the same (ADR 0070).

    python -m bench.blobs [--small 1000] [--large 20] [--at-once 8] [--client NAME …]

Small blobs have 10 KB, large ones 20 MB, of noise. The store is `perdure.testing.s3` in a process of its own on this
machine, so what is compared is the clients' own work: time on the clock, and seconds of the processor in this process.
boto3, aiobotocore and minio are measured where they can be imported.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

Put = Callable[[str, bytes], Awaitable[object]]
Get = Callable[[str], Awaitable[bytes]]
Client = tuple[Put, Get]

KEY, SECRET, REGION, BUCKET = "AKIAFAKE", "fake-secret", "us-east-1", "blobs"


async def serve() -> None:
    """The store; its first line on stdout says where."""
    from perdure.testing.s3 import FakeS3

    async with FakeS3() as s3:
        print(s3.url, flush=True)
        while True:
            await asyncio.sleep(0.5)
            s3.received.clear()


async def files(_: str, stack: AsyncExitStack) -> Client:
    from perdure.adapters.journal import FileBlobs

    return ours(FileBlobs(Path(stack.enter_context(tempfile.TemporaryDirectory()))))


async def bucket(url: str, stack: AsyncExitStack) -> Client:
    from perdure.adapters.object_store import Bucket

    environ = {"AWS_ENDPOINT_URL_S3": url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    return ours(Bucket.at(f"s3://{BUCKET}/bench", environ).blobs("bench", "1"))


def ours(blobs) -> Client:  # type: ignore[no-untyped-def]
    ids: dict[str, str] = {}

    async def put(key: str, content: bytes) -> None:
        (ids[key],) = await blobs.put((content,))

    return put, lambda key: blobs.get(ids[key])


async def obstore(url: str, stack: AsyncExitStack) -> Client:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        config={"endpoint": url, "access_key_id": KEY, "secret_access_key": SECRET, "region": REGION},
        client_options={"allow_http": True},
    )

    async def get(key: str) -> bytes:
        return bytes(await (await obstore.get_async(store, key)).bytes_async())

    return lambda key, data: obstore.put_async(store, key, data, mode="create", use_multipart=False), get


async def aiobotocore(url: str, stack: AsyncExitStack) -> Client:
    from aiobotocore.session import get_session

    client = await stack.enter_async_context(
        get_session().create_client(
            "s3", endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION
        )
    )

    async def get(key: str) -> bytes:
        async with (await client.get_object(Bucket=BUCKET, Key=key))["Body"] as body:
            return await body.read()

    return lambda key, data: client.put_object(Bucket=BUCKET, Key=key, Body=data, IfNoneMatch="*"), get


async def boto3(url: str, stack: AsyncExitStack) -> Client:
    import boto3

    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION
    )
    return in_threads(
        lambda key, data: client.put_object(Bucket=BUCKET, Key=key, Body=data, IfNoneMatch="*"),
        lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read(),
    )


async def minio(url: str, stack: AsyncExitStack) -> Client:
    from minio import Minio

    client = Minio(endpoint=url.removeprefix("http://"), access_key=KEY, secret_key=SECRET, secure=False, region=REGION)

    def get(key: str) -> bytes:
        answer = client.get_object(bucket_name=BUCKET, object_name=key)
        try:
            return bytes(answer.read())
        finally:
            answer.close()
            answer.release_conn()

    def put(key: str, data: bytes) -> object:  # one request each, as the others do
        return client.put_object(
            bucket_name=BUCKET, object_name=key, data=io.BytesIO(data), length=len(data), part_size=64 * 1024 * 1024
        )

    return in_threads(put, get)


def in_threads(put: Callable[[str, bytes], object], get: Callable[[str], bytes]) -> Client:
    return lambda key, data: asyncio.to_thread(put, key, data), lambda key: asyncio.to_thread(get, key)


CLIENTS = {
    "FileBlobs": files, "BucketBlobs": bucket,
    "obstore": obstore, "minio": minio, "aiobotocore": aiobotocore, "boto3": boto3,
}  # fmt: skip


async def each(calls: Sequence[Callable[[], Awaitable[object]]], at_once: int) -> tuple[list[object], float, float]:
    """What the calls gave, and the seconds they took: on the clock, and of the processor."""
    places, began, used = asyncio.Semaphore(at_once), time.perf_counter(), time.process_time()

    async def one(call: Callable[[], Awaitable[object]]) -> object:
        async with places:
            return await call()

    given = await asyncio.gather(*(one(call) for call in calls))
    return list(given), time.perf_counter() - began, time.process_time() - used


async def measure(name: str, sets: dict[str, list[bytes]], url: str, at_once: int) -> None:
    async with AsyncExitStack() as stack:
        put, get = await CLIENTS[name](url, stack)
        for what, contents in sets.items():
            keys = [f"{name}-{what.replace(' ', '')}-{n}" for n in range(len(contents))]
            _, put_took, put_used = await each(
                [lambda k=k, c=c: put(k, c) for k, c in zip(keys, contents, strict=True)], at_once
            )
            got, get_took, get_used = await each([lambda k=k: get(k) for k in keys], at_once)
            assert got == contents
            print(
                f"{name:12} {len(contents):5} x {what}   put {put_took:5.2f} s, {put_used:5.2f} s CPU   "
                f"get {get_took:5.2f} s, {get_used:5.2f} s CPU",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--small", type=int, default=1000, metavar="N", help="blobs of 10 KB")
    parser.add_argument("--large", type=int, default=20, metavar="N", help="blobs of 20 MB")
    parser.add_argument("--at-once", type=int, default=8, metavar="N", help="how many calls are under way")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only this one; may be given several times")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.serve:
        with suppress(KeyboardInterrupt):
            asyncio.run(serve())
        return
    chance = Random(1)
    sets = {
        "10 KB": [chance.randbytes(10_000) for _ in range(told.small)],
        "20 MB": [chance.randbytes(20_000_000) for _ in range(told.large)],
    }
    for name in told.client or CLIENTS:  # a store of its own for each: what one leaves there is no other's burden
        with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                asyncio.run(measure(name, sets, server.stdout.readline().strip(), told.at_once))
            except ImportError as e:
                print(f"{name:12} isn't installed: {e.name}")
            finally:
                server.kill()


if __name__ == "__main__":
    main()
