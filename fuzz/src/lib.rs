//! The targets, as the tests replay them: `crates/forbear-server/tests/fuzzed` has what each promises.

#[path = "../../crates/forbear-server/tests/fuzzed/targets/mod.rs"]
mod targets;

/// What `target` checks of these bytes.
pub fn check(target: &str, data: &[u8]) {
    let (_, check) = targets::TARGETS.iter().find(|(name, _)| *name == target).expect("a target of this name");
    check(data);
}
