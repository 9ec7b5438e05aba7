# SPDX-License-Identifier: Apache-2.0
"""Measures benchmarks/serve.py on a server of known pace: counts, times, agreement of answers, the profiler's calls.
The server is the standard library's; it streams tokens as vLLM and SGLang do."""

import http.server
import json
import threading
import time

import pytest
from conftest import benchmark

serve = benchmark("serve")
FIRST, NEXT = 0.06, 0.02  # seconds


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(json.dumps({"data": [{"id": "small"}]}).encode())

    def reply(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.calls.append((self.path, body))
        if self.path != "/v1/completions":
            return self.reply(b"")
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(body["max_tokens"]):
            time.sleep(NEXT if i else FIRST)
            token = (sum(body["prompt"]) + i) % 97
            if i >= self.server.differ_from:
                token += 1
            self.event({"choices": [{"text": f" {token}"}]})
        self.event({"choices": [], "usage": {"completion_tokens": body["max_tokens"]}})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, content):
        self.wfile.write(b"data: " + json.dumps(content).encode() + b"\n\n")
        self.wfile.flush()


@pytest.fixture
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.calls, made.differ_from = [], 1 << 30
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()


def command(server, *more):
    return ["--url", f"http://127.0.0.1:{server.server_port}", "--input", "5", "--output", "4", "--requests", "6",
            "--concurrency", "3", "--warm", "1", *more]


def test_times_are_the_servers(server, tmp_path, capsys):
    out = tmp_path / "before.json"
    assert serve.main(command(server, "--out", str(out))) == 0
    record = json.loads(out.read_text())
    assert record["requests"] == 6 and record["failed"] == 0 and record["model"] == "small"
    assert 1e3 * FIRST <= record["ttft_ms"]["mean"] < 1e3 * FIRST + 500
    assert 1e3 * NEXT <= record["tpot_ms"]["mean"] <= record["tpot_ms"]["p99"] < 1e3 * NEXT + 500
    assert record["latency_ms"]["median"] >= 1e3 * (FIRST + 3 * NEXT)
    # Two rounds of three requests, four tokens each.
    assert record["output_tokens_per_second"] <= 24 / (2 * (FIRST + 3 * NEXT))
    ratio = record["total_tokens_per_second"] / record["output_tokens_per_second"]
    assert abs(ratio - (4 + 5) / 4) < 1e-9
    assert len(server.calls) == 7 and all(len(body["prompt"]) == 5 for _, body in server.calls)
    assert "time to first token" in capsys.readouterr().out


@pytest.mark.parametrize("differ_from, equal, before", [(9, 1.0, 1.0), (3, 0.0, 0.75), (0, 0.0, 0.0)])
def test_answers_are_compared(server, tmp_path, capsys, differ_from, equal, before):
    first, second = tmp_path / "before.json", tmp_path / "after.json"
    assert serve.main(command(server, "--out", str(first), "--note", "off")) == 0
    server.differ_from = differ_from
    assert serve.main(command(server, "--against", str(first), "--out", str(second))) == 0
    found = json.loads(second.read_text())["agreement"]
    assert found == {"answers": 6, "equal_answers": equal, "tokens_before_first_difference": before}
    assert f"equal answers         {equal:.0%}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other settings"):
        serve.main(command(server, "--seed", "5", "--against", str(first)))


def test_the_profiler_is_started_and_stopped(server):
    assert serve.main(command(server, "--profile")) == 0
    assert [path for path, _ in server.calls] == ["/start_profile", "/v1/completions", "/stop_profile"]


def test_scores_side_by_side(tmp_path, capsys):
    for name, value in (("a", 0.5), ("b", 0.625)):
        (tmp_path / name).write_text(json.dumps({"gsm8k": value, "only " + name: 1}))
    assert serve.main(["--scores", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out.split() == ["gsm8k", "0.5000", "0.6250", "+0.1250"]
