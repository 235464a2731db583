#!/usr/bin/env bash
# Planted bugs in the driver: each *.patch here breaks one promise of what connects the core to the world. Every one must
# be found by the run over pipes (crates/forbear-server/tests/pipes); one that is not shows a hole in its checks.
#
# `none` runs the tree as it is. Builds a copy with a target of its own in target/mutants-driver, the first time for minutes.
#
#   crates/forbear-lab/mutations/driver/run.sh [--seeds N] [NAME...]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../../../.." && pwd)"
work="$root/target/mutants-driver"
seeds=2000
if [ "${1:-}" = "--seeds" ]; then seeds="$2"; shift 2; fi
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for patch in "$here"/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

mkdir -p "$work"
rm -rf "$work/crates" "$work/xtask" "$work/providers"
cp -r "$root/crates" "$root/xtask" "$root/providers" "$work/"
cp "$root"/Cargo.toml "$root"/Cargo.lock "$root"/*.yaml "$work/"
cp -r "$root/docs" "$work/"

missed=0
for name in "${names[@]}"; do
  for crate in forbear-core forbear-server; do
    rm -rf "$work/crates/$crate/src"
    cp -r "$root/crates/$crate/src" "$work/crates/$crate/"
  done
  if [ "$name" != none ] && ! patch --quiet --no-backup-if-mismatch -d "$work" -p1 < "$here/$name.patch"; then
    printf '%-34s DOES NOT APPLY\n' "$name"
    missed=$((missed + 1))
    continue
  fi
  find "$work/crates/forbear-core/src" "$work/crates/forbear-server/src" -name '*.rs' -exec touch {} +
  if ! (cd "$work" && CARGO_TARGET_DIR="$work/target" cargo test --quiet --offline -p forbear-server --test pipes \
    --no-run --message-format json > "$work/build.json" 2> "$work/build.log"); then
    printf '%-34s DOES NOT BUILD, see target/mutants-driver/build.log\n' "$name"
    missed=$((missed + 1))
    continue
  fi
  binary="$(grep -o '"executable":"[^"]*/pipes-[^"]*"' "$work/build.json" | tail -1 | cut -d'"' -f4)"
  said="$(cd "$work/crates/forbear-server" && FORBEAR_TEST_SEEDS="$seeds" RUST_BACKTRACE=0 timeout 600 \
    "$binary" --exact no_schedule_breaks_a_promise 2>&1 || true)"
  found="$(grep -a -m1 -o '^seed [0-9]*' <<< "$said" || true)"
  check="$(grep -a -m1 -o 'BROKEN .*' <<< "$said" | cut -c8-110 || true)"
  if [ -n "$found" ] && [ -n "$check" ]; then
    printf '%-34s found at %s by %s\n' "$name" "$found" "$check"
  elif grep -qa 'test result: ok' <<< "$said"; then
    printf '%-34s NOT FOUND in %s seeds\n' "$name" "$seeds"
    [ "$name" = none ] || missed=$((missed + 1))
  else
    printf '%-34s ended otherwise: %s\n' "$name" "$(tail -1 <<< "$said")"
    missed=$((missed + 1))
  fi
done
if [ "$missed" -gt 0 ]; then echo "$missed planted bugs were not found"; exit 1; fi
