//! What the fuzz targets check, over every input that was kept: a file that broke a reader once lies in
//! `corpus/TARGET/` and is read again with every test. `cargo xtask fuzz` looks for new ones.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod targets;

use std::path::{Path, PathBuf};

use targets::TARGETS;

/// Kept inputs a target has at least.
const KEPT_MIN: usize = 5;

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort_unstable();
    files
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzzed/corpus")
}

fn replay(name: &str) {
    let (_, target) = TARGETS.iter().find(|(target, _)| *target == name).unwrap();
    let kept = files(&corpus().join(name));
    assert!(kept.len() >= KEPT_MIN, "{} kept inputs", kept.len());
    for file in kept {
        // The name of the file stands above what the target says, where it fails.
        println!("{}", file.display());
        target(&std::fs::read(&file).unwrap());
    }
}

/// A test for each target, by its name.
macro_rules! replayed {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target));
        })*

        #[test]
        fn every_target_is_replayed() {
            let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($target)),*]);
        }
    };
}

replayed!(
    config durations event_stream guard idempotency_key prefer response response_body retry_after routes structured
    traceparent
);

/// Answers that another test keeps are inputs as well.
#[test]
fn recorded_answers() {
    let (_, response) = TARGETS.iter().find(|(target, _)| *target == "response").unwrap();
    for file in files(&corpus().join("../../contracts/corpus")) {
        println!("{}", file.display());
        response(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn every_directory_of_the_corpus_is_a_target() {
    let names: Vec<String> =
        files(&corpus()).iter().map(|f| f.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let mut targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    targets.sort_unstable();
    assert_eq!(names, targets);
}
