#!/usr/bin/env bash
# Planted bugs: each *.patch here breaks one promise of the core in about one line. Every one must be found by the
# simulator within the seeds that the table in README.md allows it; one that is not shows a hole in its checks.
#
# `none` runs the core as it is. Builds only the core and the simulator, in target/mutants, so that a bug costs a few seconds.
# What is printed is a line of the table.
#
#   crates/forbear-lab/mutations/run.sh [NAME...]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
work="$root/target/mutants"
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for patch in "$here"/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

fresh() {
  rm -rf "$work/crates" "$work/harness"
  mkdir -p "$work/crates" "$work/harness/src"
  cp -r "$root/crates/forbear-core" "$work/crates/"
  cp -r "$root/crates/forbear-lab/src/sim" "$work/harness/src/"
  cp "$root/Cargo.lock" "$work/"
  sed -e 's|^members = .*|members = ["crates/forbear-core", "harness"]|' -e '/^default-members/d' \
    "$root/Cargo.toml" > "$work/Cargo.toml"
  cat > "$work/harness/Cargo.toml" <<'TOML'
[package]
name = "harness"
version = "0.1.0"
edition = "2024"
[dependencies]
forbear-core.workspace = true
serde.workspace = true
TOML
  cat > "$work/harness/src/main.rs" <<'RUST'
#![allow(dead_code, unreachable_pub)]
mod sim;
fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1_000);
    std::panic::set_hook(Box::new(|_| ()));
    let options = sim::SimOptions { seeds, stop_at_first: true, ..sim::SimOptions::default() };
    let report = sim::run(options, |_| ());
    let Some(broken) = report.first_broken else {
        return println!("NOT FOUND in {} seeds", report.seeds);
    };
    let lines = broken.shrunk.as_ref().map_or(0, |s| s.trace.len());
    println!("{} | `{}` | {lines}", broken.seed, broken.check);
    for line in broken.shrunk.iter().flat_map(|s| &s.trace) {
        eprintln!("{line}");
    }
}
RUST
}

missed=0
fresh
for name in "${names[@]}"; do
  rm -rf "$work/crates/forbear-core/src"
  cp -r "$root/crates/forbear-core/src" "$work/crates/forbear-core/"
  if [ "$name" != none ] && ! patch --quiet --no-backup-if-mismatch -d "$work" -p1 < "$here/$name.patch"; then
    printf '%-40s DOES NOT APPLY\n' "$name"
    missed=$((missed + 1))
    continue
  fi
  find "$work/crates/forbear-core/src" -name '*.rs' -exec touch {} +
  row="$(grep -F "| \`$name\` |" "$here/README.md" || true)"
  what="$(cut -d'|' -f3 <<< "$row" | sed 's/^ *//; s/ *$//')"
  bound="$(cut -d'|' -f4 <<< "$row" | tr -d ' ,')"
  found="$(cd "$work" && CARGO_TARGET_DIR="$work/target" CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0 \
    cargo build --quiet --offline -p harness 2> "$work/build.log" \
    && "$work/target/debug/harness" "${bound:-5000}" 2> "$work/$name.trace" || echo "DOES NOT BUILD, see target/mutants/build.log")"
  printf '| `%s` | %s | %s | %s |\n' "$name" "$what" "$bound" "$found"
  case "$found" in [0-9]*) ;; *) [ "$name" = none ] || missed=$((missed + 1)) ;; esac
done
if [ "$missed" -gt 0 ]; then echo "$missed planted bugs were not found"; exit 1; fi
