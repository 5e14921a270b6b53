"""Runs a batch with OpenAI's client against the URL that it is given, and writes what it saw as one JSON object."""

import io
import json
import sys
import time

import openai


def until(client, batch, status):
    end = time.monotonic() + 60
    while batch.status != status and time.monotonic() < end:
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def upload(client, lines):
    return client.files.create(file=("lines.jsonl", io.BytesIO(lines.encode())), purpose="batch")


def refused(call):
    try:
        call()
    except openai.APIStatusError as error:
        return [error.status_code, error.code]


url, good, bad = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key="any", max_retries=0)
seen = {}

file = upload(client, good)
seen["file"] = [file.object, file.bytes, file.filename, file.purpose, file.status]
batch = client.batches.create(
    input_file_id=file.id,
    endpoint="/v1/chat/completions",
    completion_window="24h",
    metadata={"night": "1"},
    output_expires_after={"anchor": "created_at", "seconds": 7200},
)
batch = until(client, batch, "completed")
seen["batch"] = [batch.status, batch.metadata, batch.request_counts.model_dump()]
output = client.files.content(batch.output_file_id).text
seen["output"] = sorted(json.loads(line)["custom_id"] for line in output.splitlines())
output_file = client.files.retrieve(batch.output_file_id)
seen["lifetimes"] = [output_file.expires_at - output_file.created_at]
errors = client.files.content(batch.error_file_id).text
seen["errors"] = [json.loads(line)["custom_id"] for line in errors.splitlines()]

failed = client.batches.create(
    input_file_id=upload(client, bad).id, endpoint="/v1/chat/completions", completion_window="24h"
)
failed = until(client, failed, "failed")
seen["failed"] = [failed.status, [[error.line, error.code] for error in failed.errors.data]]

seen["batches"] = [listed.id for listed in client.batches.list(limit=1)] == [failed.id, batch.id]
seen["files"] = file.id in [listed.id for listed in client.files.list(purpose="batch", limit=1)]
short = client.files.create(
    file=("short.jsonl", io.BytesIO(good.encode())),
    purpose="batch",
    expires_after={"anchor": "created_at", "seconds": 3600},
)
seen["lifetimes"].append(short.expires_at - short.created_at)
oldest_first = [listed.id for listed in client.files.list(order="asc", limit=2)]
newest_first = [listed.id for listed in client.files.list(order="desc", limit=2)]
seen["order"] = [oldest_first[0] == file.id, newest_first[0] == short.id, oldest_first == newest_first[::-1]]
seen["refused"] = refused(
    lambda: client.files.create(
        file=("short.jsonl", b"{}"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 1}
    )
)
seen["ended"] = refused(lambda: client.batches.cancel(batch.id))
seen["deleted"] = client.files.delete(file.id).deleted
seen["gone"] = refused(lambda: client.files.retrieve(file.id))
print(json.dumps(seen))
