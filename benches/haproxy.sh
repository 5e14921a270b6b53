#!/usr/bin/env bash
# What a request costs the demo gateway, beside what it costs HAProxy, in CPU time of the process.
#
#   benches/haproxy.sh            # builds the gateway, installs what is missing if it may, takes 2 minutes
#
# Both have WORKERS threads, one by default, 64 slots and the same nginx behind them, and are driven in turn by the same client with a chat
# request of 1 KB: over 32 connections, so that no request waits, and over 256, so that 192 do. The gateway reads each
# body to learn its model; HAProxy only passes it on. Neither logs, both send `x-forwarded-for`.
#
# The backend answers RATE requests a second, evenly, and holds those that come faster: both proxies have the same work,
# and more than 64 connections keep every slot taken. RATE=0 lifts that, and measures both at full speed.
set -euo pipefail
cd "$(dirname "$0")/.."

PASSES="${PASSES:-9}"            # for each of the two and each number of connections
SECONDS_EACH="${SECONDS_EACH:-2}"
RATE="${RATE:-6000}"
WORKERS="${WORKERS:-1}"
SLOTS=64
FEW=32
MANY=256

fail() { echo "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }
PATH="$PATH:/usr/sbin"

missing=()
for tool in haproxy nginx wrk curl; do have "$tool" || missing+=("$tool"); done
if [ "${#missing[@]}" -gt 0 ]; then
  [ "$(id -u)" = 0 ] && have apt-get || fail "missing, and this script may not install them: ${missing[*]}"
  echo "installing ${missing[*]}" >&2
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
    >/dev/null 2>&1 || fail "apt-get could not install ${missing[*]}"
fi
if [ -z "${GATEWAY:-}" ]; then
  cargo build --release --all-features --example gateway || fail "the gateway does not build"
  GATEWAY="${CARGO_TARGET_DIR:-target}/release/examples/gateway"
fi
[ -x "$GATEWAY" ] || fail "there is no gateway at $GATEWAY"

dir="$(mktemp -d)"
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM

# A free port of 127.0.0.1, and not the same one twice.
port=$((20000 + RANDOM % 10000))
free_port() {
  port=$((port + 1))
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
}
free_port; backend=$port
free_port; haproxy=$port
free_port; stats=$port
free_port; gateway=$port

# start NAME COMMAND...: its output goes to a file.
start() {
  local name="$1"; shift
  "$@" >"$dir/$name.log" 2>&1 &
  pids+=($!)
}
# ready NAME URL: returns when it answers.
ready() {
  for _ in $(seq 100); do
    curl -fso /dev/null --max-time 1 "$2" && return
    sleep 0.05
  done
  fail "$1 does not answer: $(tail -5 "$dir/$1.log")"
}

answer='{"id":"chatcmpl-1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello! How can I help?"},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":7,"total_tokens":207}}'
held=""
[ "$RATE" = 0 ] || held="limit_req zone=all burst=100000;"
cat >"$dir/nginx.conf" <<CONF
daemon off;
master_process off;
worker_processes 1;
pid $dir/nginx.pid;
error_log $dir/nginx.log crit;
events { worker_connections 2048; }
http {
  access_log off;
  keepalive_requests 100000000;
  keepalive_timeout 600s;
  client_body_temp_path $dir/body;
  proxy_temp_path $dir/proxy;
  fastcgi_temp_path $dir/fastcgi;
  uwsgi_temp_path $dir/uwsgi;
  scgi_temp_path $dir/scgi;
  limit_req_zone \$server_port zone=all:1m rate=$((RATE > 0 ? RATE : 1))r/s;
  server {
    listen 127.0.0.1:$backend backlog=4096;
    location = /health { return 200 "ok"; }
    # What is held has to pass a phase that comes after that of a plain \`return\`.
    location /v1/ { $held try_files /nothing @answer; }
    location @answer { default_type application/json; return 200 '$answer'; }
  }
}
CONF
cat >"$dir/haproxy.cfg" <<CONF
global
  nbthread $WORKERS
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout queue 60s
  option forwardfor
  http-reuse always
frontend in
  bind 127.0.0.1:$haproxy
  default_backend out
backend out
  server nginx 127.0.0.1:$backend maxconn $SLOTS
frontend stats
  bind 127.0.0.1:$stats
  stats enable
  stats uri /stats
CONF
cat >"$dir/gateway.toml" <<CONF
listen = "127.0.0.1:$gateway"
[server]
workers = $WORKERS
[queue]
max_size = 1000
max_wait_seconds = 60
[[backends]]
name = "nginx"
url = "http://127.0.0.1:$backend"
max_concurrent = $SLOTS
models = [{ name = "m" }]
CONF
cat >"$dir/chat.lua" <<'LUA'
local words = ("the quick brown fox jumps over the lazy dog "):rep(18)
wrk.method = "POST"
wrk.path = "/v1/chat/completions"
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer sk-0123456789abcdef"
wrk.body = '{"model":"m","temperature":0.7,"max_tokens":64,"messages":['
  .. '{"role":"system","content":"You are a helpful assistant."},'
  .. '{"role":"user","content":"' .. words .. '"}]}'
done = function(summary)
  local e = summary.errors
  io.write(string.format("\nanswered %d failed %d\n", summary.requests,
    e.connect + e.read + e.write + e.status + e.timeout))
end
LUA

start nginx nginx -c "$dir/nginx.conf" -p "$dir"
ready nginx "http://127.0.0.1:$backend/health"
start haproxy haproxy -db -f "$dir/haproxy.cfg"
haproxy_pid=$!
ready haproxy "http://127.0.0.1:$stats/stats"
start gateway env TOKIO_WORKER_THREADS=1 TRIAGE_LOG=warn "$GATEWAY" --config "$dir/gateway.toml"
gateway_pid=$!
ready gateway "http://127.0.0.1:$gateway/healthz"

# CPU time of a process so far, in clock ticks, user and system.
ticks() {
  local stat
  stat="$(<"/proc/$1/stat")"
  set -- ${stat##*) }
  echo $((${12} + ${13}))
}
tick_us=$((1000000 / $(getconf CLK_TCK)))

# drive PORT CONNECTIONS SECONDS: sets `answered`.
drive() {
  local out
  out="$(wrk -t1 -c"$2" -d"$3"s --timeout 10s -s "$dir/chat.lua" "http://127.0.0.1:$1")" || fail "wrk failed: $out"
  [[ "$out" =~ answered\ ([0-9]+)\ failed\ ([0-9]+) ]] || fail "wrk says nothing of requests: $out"
  answered="${BASH_REMATCH[1]}"
  [ "${BASH_REMATCH[2]}" = 0 ] && [ "$answered" -gt 0 ] || fail "not every request was answered well: $out"
}

# How many requests wait, as the proxy itself reports.
waiting_haproxy() { curl -fs "http://127.0.0.1:$stats/stats;csv" | awk -F, '$1 == "out" && $2 == "BACKEND" { print $3 }'; }
waiting_gateway() { curl -fs "http://127.0.0.1:$gateway/admin/state" | sed -E 's/.*"depth":([0-9]+).*/\1/'; }

median() { printf '%s\n' "$@" | sort -n | awk '{ a[NR] = $1 } END { print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }
lowest_highest() { printf '%s\n' "$@" | sort -n | sed -n '1p;$p' | paste -sd' ' | awk '{ printf "%.1f to %.1f", $1, $2 }'; }

quartiles() { printf '%s\n' "$@" | sort -n | awk '{ a[NR - 1] = $1 } END { printf "%.2f to %.2f", a[int((NR - 1) / 4)], a[int((NR - 1) * 3 / 4)] }'; }

# warm_up NAME PORT CONNECTIONS: sets `waits` to how many requests wait meanwhile.
warm_up() {
  drive "$2" "$3" 2 &
  local driver=$!
  sleep 0.7
  local seen=()
  for _ in 1 2 3; do seen+=("$("waiting_$1")"); sleep 0.2; done
  wait "$driver" || fail "$1 did not answer while it was warmed up"
  waits="$(median "${seen[@]}")"
}

printf '%-12s %-9s %12s %20s %12s %8s\n' connections proxy "µs a request" "(lowest to highest)" "requests/s" waiting
for connections in "$FEW" "$MANY"; do
  for proxy in haproxy gateway; do
    warm_up "$proxy" "${!proxy}" "$connections"
    declare "waits_$proxy=$waits"
    if [ "$connections" = "$MANY" ] && [ "${waits%.*}" -lt $(((MANY - SLOTS) / 2)) ]; then
      fail "only $waits requests wait for $proxy with $MANY connections: the backend is too fast for $SLOTS slots"
    fi
  done
  costs_haproxy=(); costs_gateway=()
  speed_haproxy=(); speed_gateway=()
  for pass in $(seq "$PASSES"); do
    # Each goes first in every other pass.
    order="haproxy gateway"
    [ $((pass % 2)) = 1 ] || order="gateway haproxy"
    for proxy in $order; do
      pid="${proxy}_pid"
      before="$(ticks "${!pid}")"
      drive "${!proxy}" "$connections" "$SECONDS_EACH"
      after="$(ticks "${!pid}")"
      declare -n costs="costs_$proxy" speed="speed_$proxy"
      costs+=("$(awk "BEGIN { print ($after - $before) * $tick_us / $answered }")")
      speed+=($((answered / SECONDS_EACH)))
    done
  done
  for proxy in haproxy gateway; do
    declare -n costs="costs_$proxy" speed="speed_$proxy" waits="waits_$proxy"
    printf '%-12s %-9s %11.1f %20s %12s %8s\n' "$connections" "$proxy" "$(median "${costs[@]}")" \
      "$(lowest_highest "${costs[@]}")" "$(median "${speed[@]}")" "$waits"
    unset -n waits
  done
  ratios=()
  for pass in "${!costs_haproxy[@]}"; do
    ratios+=("$(awk "BEGIN { print ${costs_gateway[pass]} / ${costs_haproxy[pass]} }")")
  done
  [ "$connections" = "$FEW" ] && goal=1.2 || goal=1.25
  printf '%-12s %-9s %11.2f× %20s   quartiles; goal ≤ %s×\n' "$connections" ratio "$(median "${ratios[@]}")" \
    "$(quartiles "${ratios[@]}")" "$goal"
done
