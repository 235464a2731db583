//! How many tests passed and failed, read from what cargo, nextest and pytest print.

/// A step that runs no tests of its own counts as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl Counts {
    pub(super) const PASSED: Self = Self { passed: 1, failed: 0 };
    pub(super) const FAILED: Self = Self { passed: 0, failed: 1 };

    pub(super) const fn plus(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }

    /// What a run that ended so counts as: one that failed without a failed test (it did not build, it was killed) is a
    /// failure all the same.
    pub(super) const fn of_run(self, succeeded: bool) -> Self {
        if succeeded || self.failed > 0 { self } else { self.plus(Self::FAILED) }
    }
}

/// The counts of one printed line, if it is a summary.
pub(super) fn counts_in(line: &str) -> Option<Counts> {
    let line = line.trim();
    let is_cargo = line.starts_with("test result: ");
    let is_nextest = line.starts_with("Summary [") && line.contains(" run: ");
    // `3 failed, 2 passed in 1.20s`, between rules of `=` unless pytest is told to be quiet.
    let outcomes = ["passed", "failed", "error", "errors"];
    let is_pytest = line.trim_matches(['=', ' ']).rsplit_once(" in ").is_some_and(|(counts, took)| {
        is_pytest_time(took) && counts.split([' ', ',']).any(|word| outcomes.contains(&word))
    });
    if !(is_cargo || is_nextest || is_pytest) {
        return None;
    }
    let words: Vec<&str> = line.split([' ', ',', ';']).filter(|word| !word.is_empty()).collect();
    let sum = |names: &[&str]| -> u64 {
        let pairs = words.windows(2).filter(|pair| names.contains(&pair[1]));
        pairs.filter_map(|pair| pair[0].parse::<u64>().ok()).sum()
    };
    Some(Counts { passed: sum(&["passed"]), failed: sum(&["failed", "error", "errors", "timed"]) })
}

fn is_pytest_time(took: &str) -> bool {
    took.split(' ')
        .next()
        .and_then(|first| first.strip_suffix('s'))
        .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::{Counts, counts_in};

    #[test]
    fn summaries_of_each_tool() {
        for (line, passed, failed) in [
            ("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s", 12, 0),
            ("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s", 3, 2),
            ("     Summary [   0.009s] 12 tests run: 12 passed, 0 skipped", 12, 0),
            ("     Summary [   1.009s] 5 tests run: 3 passed (1 slow), 1 failed, 1 timed out, 0 skipped", 3, 2),
            ("======== 2 failed, 7 passed, 1 error in 12.34s ========", 7, 3),
            ("9 passed in 1.02s", 9, 0),
            ("1 failed, 19 passed, 1 skipped, 1 warning in 64.43s (0:01:04)", 19, 1),
            ("9 passed in 75.02s (0:01:15)", 9, 0),
        ] {
            assert_eq!(counts_in(line), Some(Counts { passed, failed }), "{line}");
        }
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in
            ["", "3 passed", "test a::b ... ok", "error: could not compile", "2 failed in the end", "Finished in 3s"]
        {
            assert_eq!(counts_in(line), None, "{line}");
        }
    }

    #[test]
    fn a_run_that_did_not_build_is_a_failure() {
        assert_eq!(Counts::default().of_run(false), Counts::FAILED);
        assert_eq!(Counts { passed: 3, failed: 1 }.of_run(false), Counts { passed: 3, failed: 1 });
        assert_eq!(Counts { passed: 3, failed: 0 }.of_run(true), Counts { passed: 3, failed: 0 });
    }
}
