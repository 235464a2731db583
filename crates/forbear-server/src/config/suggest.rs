//! What somebody probably meant: the nearest of the names that would have been right.

/// The nearest candidate, if it is near enough to be worth saying.
pub(super) fn nearest<'c>(written: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let plain = |s: &str| -> Vec<char> {
        s.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
    };
    let own = plain(written);
    if own.len() > 64 {
        return None;
    }
    let allowed = (own.len() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|c| (distance(&own, &plain(c)), c))
        .min_by_key(|(d, _)| *d)
        .filter(|(d, _)| *d <= allowed)
        .map(|(_, c)| c)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn distance(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; width];
        for j in 1..width {
            let same = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// The names that are valid here, as a sentence.
pub(super) fn listed<'c>(candidates: impl IntoIterator<Item = &'c str>) -> String {
    candidates.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_does_not() {
        let keys = ["max_retries", "max_wait_seconds", "listen", "read"];
        for (written, expect) in [
            ("max_retires", Some("max_retries")),
            ("maxRetries", Some("max_retries")),
            ("max-wait-second", Some("max_wait_seconds")),
            ("lsiten", Some("listen")),
            ("raed", Some("read")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, keys), expect, "{written}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), keys), None);
    }
}
