#!/usr/bin/env bash
# What one operation on a waiting room costs in instructions and in cache lines beyond L2, with 100 and with 100,000
# waiting: counted by cachegrind, so that other load on the machine changes nothing.
#
#   benches/cache_lines.sh        # needs valgrind, takes a minute
#
# Each figure is what N more operations cost, divided by N: filling the room is not in it. The caches are those of a
# common server core: 32 KB L1, 2 MB L2.
set -euo pipefail
cd "$(dirname "$0")/.."

N="${N:-100000}"
command -v valgrind >/dev/null || { echo "valgrind is missing" >&2; exit 1; }
cargo build --quiet --profile bench -p tower-triage-benches --bin growth
growth="${CARGO_TARGET_DIR:-target}/release/growth"

# Instructions, and cache lines fetched from beyond L2, of a run.
count() {
  valgrind --tool=cachegrind --cache-sim=yes --cachegrind-out-file=/dev/null \
    --I1=32768,8,64 --D1=32768,8,64 --LL=2097152,16,64 "$growth" "$@" 2>&1 |
    awk '{ gsub(",", "") } /I *refs:/ { i = $4 } /LL misses:/ { l = $4 } END { print i, l }'
}

# The same of one operation: the difference between runs of N and of 2 N.
count_one() {
  local few many
  few="$(count "$@" "$N")"
  many="$(count "$@" "$((2 * N))")"
  awk -v n="$N" '{ printf "%.1f %.2f\n", ($3 - $1) / n, ($4 - $2) / n }' <<<"$few $many"
}

printf '%-44s %12s %12s %8s %14s\n' "" "instructions" "" "" "cache lines"
printf '%-44s %12s %12s %8s %14s   %s\n' "" "100 waiting" "100,000" "growth" "at 100,000" "goal"

# What enqueue + operation cost, less what picking the waiter costs.
row() {
  local title="$1" configuration="$2" operation="$3" goal="$4" few many pick_few="0 0" pick_many="0 0"
  few="$(count_one "$configuration" 100 "$operation")"
  many="$(count_one "$configuration" 100000 "$operation")"
  if [ "$operation" = cancel ] || [ "$operation" = change ]; then
    pick_few="$(count_one "$configuration" 100 pick)"
    pick_many="$(count_one "$configuration" 100000 pick)"
  fi
  awk -v title="$title" -v goal="$goal" '{
    few = $1 - $5; many = $3 - $7
    printf "%-44s %12.0f %12.0f %+7.1f%% %14.2f   %s\n", title, few, many, 100 * (many / few - 1), $4 - $8, goal
  }' <<<"$few $many $pick_few $pick_many"
}

# All but the second have the default `max_wait`.
row "enqueue + cancel in the middle" plain cancel "≤ 1.5 lines, + 1 % instructions"
row "the same without max_wait" untimed cancel "≤ 1.5 lines, + 1 % instructions"
row "the same, 8 tenants, fair" fair cancel "≤ 2 lines, + 1 % instructions"
row "a ticket changes" plain change "+ 10 % instructions"
row "the same, 8 tenants, fair" fair change "+ 10 % instructions"
row "enqueue + grant" plain grant "+ 1 % instructions"
row "the same, 8 tenants, fair" fair grant "≤ 3 lines, + 1 % instructions"
