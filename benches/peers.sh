#!/usr/bin/env bash
# The cost of a request in the gateway, beside that in HAProxy, vllm-router and SMG, in CPU time of the process.
#
#   benches/peers.sh                # builds the gateway, installs what is missing if it may, takes 5 minutes
#   benches/peers.sh --callgrind    # adds the gateway's user instructions, by valgrind; 2 minutes more
#
# All have one thread for requests, 64 slots and the same nginx behind them, and are driven in turn by the same client with
# a chat request of 1 KB: over 32 connections, so that no request waits, and over 256, so that 192 do. The gateway and the
# two routers read each body to learn its model; HAProxy only passes it on. None logs requests.
#
# The backend answers RATE requests a second, evenly, and holds those that come faster: all proxies have the same work,
# and more than 64 connections keep every slot taken. RATE=0 lifts that, and measures all at full speed.
#
# THREADS=4 gives four threads to each of them, to nginx and to the client, and four times the slots, connections and RATE.
#
# vllm-router and SMG come from PyPI, into a virtual environment that is deleted afterwards. VENV=folder keeps and uses one.
# PEERS="haproxy gateway" leaves the others out. One that cannot be had is left out with a line that says why.
set -euo pipefail
cd "$(dirname "$0")/.."

PASSES="${PASSES:-9}"            # for each proxy and each number of connections
SECONDS_EACH="${SECONDS_EACH:-2}"
THREADS="${THREADS:-1}"
RATE="${RATE:-$((6000 * THREADS))}"
PEERS="${PEERS:-haproxy gateway vllm-router smg}"
SLOTS=$((64 * THREADS))
FEW=$((32 * THREADS))
MANY=$((256 * THREADS))

fail() { echo "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }
PATH="$PATH:/usr/sbin"

callgrind=""
case "${1:-}" in
  "") ;;
  --callgrind) callgrind=1 ;;
  *) fail "unknown argument '$1': only --callgrind is known" ;;
esac

missing=()
for tool in haproxy nginx wrk curl ${callgrind:+valgrind}; do have "$tool" || missing+=("$tool"); done
if [ "${#missing[@]}" -gt 0 ]; then
  [ "$(id -u)" = 0 ] && have apt-get || fail "missing, and this script may not install them: ${missing[*]}"
  echo "installing ${missing[*]}" >&2
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
    >/dev/null 2>&1 || fail "apt-get could not install ${missing[*]}"
fi
if [ -z "${GATEWAY:-}" ]; then
  crates/gateway/scripts/dist-build --all-features || fail "the gateway does not build"
  GATEWAY="${CARGO_TARGET_DIR:-target}/dist/triage-gateway"
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
free_port; stats=$port
declare -A at pid cost rate waits
for proxy in $PEERS; do free_port; at[$proxy]=$port; done

# start NAME COMMAND...: its output goes to a file.
start() {
  local name="$1"; shift
  "$@" >"$dir/$name.log" 2>&1 &
  pids+=($!)
}
# ready NAME URL ARGUMENTS...: returns when it answers curl with these arguments, and fails if it does not in 30 s.
ready() {
  local name="$1"; shift
  for _ in $(seq 300); do
    curl -fso /dev/null --max-time 1 "$@" && return
    sleep 0.1
  done
  echo "$name does not answer: $(tail -5 "$dir/$name.log")" >&2
  return 1
}

answer='{"id":"chatcmpl-1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello! How can I help?"},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":7,"total_tokens":207}}'
held=""
[ "$RATE" = 0 ] || held="limit_req zone=all burst=100000;"
cat >"$dir/nginx.conf" <<CONF
daemon off;
master_process $([ "$THREADS" = 1 ] && echo off || echo on);
worker_processes $THREADS;
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
    location = /v1/models { default_type application/json; return 200 '{"object":"list","data":[{"id":"m","object":"model"}]}'; }
    # What is held has to pass a phase that comes after that of a plain \`return\`.
    location /v1/ { $held try_files /nothing @answer; }
    location @answer { default_type application/json; return 200 '$answer'; }
  }
}
CONF
cat >"$dir/haproxy.cfg" <<CONF
global
  nbthread $THREADS
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
  bind 127.0.0.1:${at[haproxy]:-$backend}
  default_backend out
backend out
  server nginx 127.0.0.1:$backend maxconn $SLOTS
frontend stats
  bind 127.0.0.1:$stats
  stats enable
  stats uri /stats
CONF
cat >"$dir/gateway.toml" <<CONF
listen = "127.0.0.1:${at[gateway]:-$backend}"
[server]
workers = $THREADS
[queue]
max_size = $((1000 * THREADS))
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

# start_proxy NAME: returns once it answers. Fails if it cannot be had.
start_proxy() {
  local here="http://127.0.0.1:${at[$1]}"
  case "$1" in
    haproxy) start haproxy haproxy -db -f "$dir/haproxy.cfg" ;;
    gateway) start gateway env TOKIO_WORKER_THREADS=$THREADS TRIAGE_LOG=warn $under "$GATEWAY" --config "$dir/gateway.toml" ;;
    # Its queue answers some of 192 waiting requests with 408 at once, so tokens for all let them wait in the backend.
    vllm-router) start_router "$1" vllm-router --rate-limit-tokens-per-second 1000000 || return 1 ;;
    smg) start_router "$1" smg launch || return 1 ;;
    *) fail "unknown proxy '$1' in PEERS" ;;
  esac
  pid[$1]=$!
  case "$1" in
    haproxy) ready "$1" "http://127.0.0.1:$stats/stats" ;;
    gateway) ready "$1" "$here/healthz" ;;
    *) ready "$1" "$here/v1/chat/completions" -H 'content-type: application/json' \
      -d '{"model":"m","messages":[{"role":"user","content":"hi"}]}' ;;
  esac
}

# start_router NAME COMMAND...: starts a router of PyPI.
start_router() {
  local name="$1"; shift
  [ -x "$venv/bin/python3" ] || python3 -m venv "$venv" >"$dir/$name.log" 2>&1 || return 1
  "$venv/bin/pip" install -q --only-binary :all: "$name" >"$dir/$name.log" 2>&1 || return 1
  free_port
  start "$name" env TOKIO_WORKER_THREADS=$THREADS "$venv/bin/$@" --host 127.0.0.1 --port "${at[$name]}" \
    --worker-urls "http://127.0.0.1:$backend" --policy round_robin --max-concurrent-requests "$SLOTS" --queue-size $((1000 * THREADS)) \
    --queue-timeout-secs 60 --prometheus-host 127.0.0.1 --prometheus-port "$port" --log-level error
}

venv="${VENV:-$dir/venv}"
under=""
start nginx nginx -c "$dir/nginx.conf" -p "$dir"
ready nginx "http://127.0.0.1:$backend/health"
running=()
for proxy in $PEERS; do
  if start_proxy "$proxy"; then
    running+=("$proxy")
  else
    echo "$proxy is left out: $(tail -1 "$dir/$proxy.log")" >&2
  fi
done

# CPU time of all threads of a process so far, in µs, user and system.
cpu_us() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum / 1000 }'; }

# drive PORT CONNECTIONS SECONDS: sets `answered`.
drive() {
  local out
  out="$(wrk -t"$THREADS" -c"$2" -d"$3"s --timeout 10s -s "$dir/chat.lua" "http://127.0.0.1:$1")" || fail "wrk failed: $out"
  [[ "$out" =~ answered\ ([0-9]+)\ failed\ ([0-9]+) ]] || fail "wrk says nothing of requests: $out"
  answered="${BASH_REMATCH[1]}"
  [ "${BASH_REMATCH[2]}" = 0 ] && [ "$answered" -gt 0 ] || fail "not every request was answered well: $out"
}

# waiting NAME: the number of requests that wait, as the proxy itself reports it; nothing for those that do not.
waiting() {
  case "$1" in
    haproxy) curl -fs "http://127.0.0.1:$stats/stats;csv" | awk -F, '$1 == "out" && $2 == "BACKEND" { print $3 }' ;;
    gateway) curl -fs "http://127.0.0.1:${at[gateway]}/admin/state" | sed -E 's/.*"depth":([0-9]+).*/\1/' ;;
  esac
}

median() { printf '%s\n' "$@" | sort -n | awk '{ a[NR] = $1 } END { print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }
lowest_highest() { printf '%s\n' "$@" | sort -n | sed -n '1p;$p' | paste -sd' ' | awk '{ printf "%.1f to %.1f", $1, $2 }'; }
quartiles() { printf '%s\n' "$@" | sort -n | awk '{ a[NR - 1] = $1 } END { printf "%.2f to %.2f", a[int((NR - 1) / 4)], a[int((NR - 1) * 3 / 4)] }'; }

# warm_up NAME CONNECTIONS: sets `waits` to the number of requests that wait meanwhile.
warm_up() {
  drive "${at[$1]}" "$2" 2 &
  local driver=$! seen=()
  sleep 0.7
  for _ in 1 2 3; do seen+=($(waiting "$1")); sleep 0.2; done
  wait "$driver" || fail "$1 did not answer while it was warmed up"
  waits[$1]="-"
  [ "${#seen[@]}" = 0 ] || waits[$1]="$(median "${seen[@]}")"
  if [ "$2" = "$MANY" ] && [ "${waits[$1]}" != - ] && [ "${waits[$1]%.*}" -lt $(((MANY - SLOTS) / 2)) ]; then
    fail "only ${waits[$1]} requests wait for $1 with $MANY connections: the backend is too fast for $SLOTS slots"
  fi
}

# one_pass NAME CONNECTIONS: adds to its costs and speeds.
one_pass() {
  local before after
  before="$(cpu_us "${pid[$1]}")"
  drive "${at[$1]}" "$2" "$SECONDS_EACH"
  after="$(cpu_us "${pid[$1]}")"
  cost[$1]+=" $(awk "BEGIN { print ($after - $before) / $answered }")"
  rate[$1]+=" $((answered / SECONDS_EACH))"
}

# ratio NAME GOAL: the cost of the gateway over that of another, pass by pass.
ratio() {
  local gateway=(${cost[gateway]}) other=(${cost[$1]}) ratios=()
  for pass in "${!other[@]}"; do
    ratios+=("$(awk "BEGIN { print ${gateway[pass]} / ${other[pass]} }")")
  done
  printf '%-12s %-12s %11.2f× %20s   quartiles of gateway / %s; goal ≤ %s×\n' "$connections" ratio \
    "$(median "${ratios[@]}")" "$(quartiles "${ratios[@]}")" "$1" "$2"
}

printf '%-12s %-12s %12s %20s %12s %8s\n' connections proxy "µs a request" "(lowest to highest)" "requests/s" waiting
for connections in "$FEW" "$MANY"; do
  for proxy in "${running[@]}"; do
    warm_up "$proxy" "$connections"
    cost[$proxy]=""; rate[$proxy]=""
  done
  for pass in $(seq "$PASSES"); do
    # Each pass begins with another proxy.
    first=$((pass % ${#running[@]}))
    for proxy in "${running[@]:first}" "${running[@]:0:first}"; do one_pass "$proxy" "$connections"; done
  done
  for proxy in "${running[@]}"; do
    printf '%-12s %-12s %12.1f %20s %12s %8s\n' "$connections" "$proxy" "$(median ${cost[$proxy]})" \
      "$(lowest_highest ${cost[$proxy]})" "$(median ${rate[$proxy]})" "${waits[$proxy]}"
  done
  for proxy in "${running[@]}"; do
    case "$proxy" in
      gateway) continue ;;
      haproxy) [ "$connections" = "$FEW" ] && goal=1.25 || goal=1.3 ;;
      *) goal=0.5 ;;
    esac
    [ -z "${cost[gateway]:-}" ] || ratio "$proxy" "$goal"
  done
done

# counted CONNECTIONS SECONDS: sets `answered`, and `counted` to the user instructions meanwhile.
counted() {
  callgrind_control --zero "${pid[gateway]}" >/dev/null 2>&1
  drive "${at[gateway]}" "$1" "$2"
  callgrind_control --dump "${pid[gateway]}" >/dev/null 2>&1
  counted="$(awk '/^totals:/ { print $2 }' "$(ls -t "$dir"/callgrind.* | head -1)")"
}

# instructions CONNECTIONS: user instructions of the gateway for each request. The difference of a long and a short run
# leaves out the connections.
instructions() {
  (drive "${at[gateway]}" "$1" 10) >/dev/null 2>&1 || true # valgrind translates what runs for the first time
  counted "$1" 10
  local few="$counted" answered_few="$answered"
  counted "$1" 30
  awk "BEGIN { printf \"%.0f\", ($counted - $few) / ($answered - $answered_few) }"
}

[ -n "$callgrind" ] && [ -n "${at[gateway]:-}" ] || exit 0
kill "${pid[gateway]}"; wait "${pid[gateway]}" || true
# Valgrind makes the gateway so slow that it would refuse requests for their wait.
sed -i 's/^max_size = .*$/&\ntarget_wait = "none"/' "$dir/gateway.toml"
under="valgrind --tool=callgrind --callgrind-out-file=$dir/callgrind.%p"
start_proxy gateway
for connections in "$FEW" "$MANY"; do
  [ "$connections" = "$FEW" ] && goal=48,000 || goal=56,000
  printf '%-12s %-12s %12s user instructions a request; goal ≤ %s\n' "$connections" gateway \
    "$(instructions "$connections")" "$goal"
done
