"""Runs OpenAI's client: reads chat requests from standard input, one JSON object per line, and writes each outcome
to standard output in the same form.
"""

import json
import sys
import time

import openai


def answer(client, request):
    answer = client.chat.completions.create(**request)
    if not request.get("stream"):
        return answer.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer)


def outcome(client, request):
    try:
        return {"text": answer(client, request)}
    except openai.APIStatusError as error:
        return {
            "error": type(error).__name__,
            "status": error.status_code,
            "code": error.code,
            "param": error.param,
            "type": error.type,
            "message": error.message,
            "retry_after": error.response.headers.get("retry-after"),
        }


url, retries = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key="any", max_retries=int(retries))
for line in sys.stdin:
    start = time.monotonic()
    result = outcome(client, json.loads(line))
    print(json.dumps(result | {"seconds": time.monotonic() - start}), flush=True)
