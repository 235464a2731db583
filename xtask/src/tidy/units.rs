//! Durations in the configuration are integers whose name ends in a unit, so that nobody has to guess what 30 means.

use super::Findings;
use super::tree::Tree;

/// Parts of a name that make it a duration.
const DURATIONS: &[&str] = &[
    "age",
    "delay",
    "deadline",
    "drain",
    "duration",
    "gap",
    "grace",
    "idle",
    "interval",
    "jitter",
    "keepalive",
    "lease",
    "period",
    "retention",
    "timeout",
    "ttl",
    "wait",
];
const UNITS: &[&str] = &["ns", "micros", "ms", "seconds", "minutes", "hours", "days"];

/// Units of other things, whose names may speak of time: `max_wait_bytes`, `retries_per_minute`.
const OTHER_UNITS: &[&str] = &[
    "bytes", "requests", "attempts", "retries", "count", "share", "minute", "second", "points", "file", "path",
    "header", "headers", "max",
];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources().filter(|(path, _)| is_configuration(path)) {
        for (number, line) in source.numbered().filter(|(_, line)| !line.test) {
            if let Some(name) = integer_field(&line.code).filter(|name| lacks_unit(name)) {
                findings.fail(path, number, advice(name));
            }
        }
    }
    let yaml = tree.files().filter(|(path, _)| {
        *path == "forbear.default.yaml" || (path.starts_with("providers/") && path.ends_with(".yaml"))
    });
    for (path, text) in yaml {
        for (index, line) in text.lines().enumerate() {
            for name in integer_keys(line).filter(|name| lacks_unit(name)) {
                findings.fail(path, index + 1, advice(name));
            }
        }
    }
}

fn advice(name: &str) -> String {
    format!("`{name}` is a duration without a unit; end its name in one of {}", UNITS.join(", "))
}

fn is_configuration(path: &str) -> bool {
    path.starts_with("crates/")
        && path
            .split('/')
            .any(|part| matches!(part, "config" | "config.rs" | "options.rs" | "policy.rs" | "contract.rs"))
}

fn lacks_unit(name: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or(name);
    name.split('_').any(|part| DURATIONS.contains(&part)) && !UNITS.contains(&last) && !OTHER_UNITS.contains(&last)
}

/// The name of a struct field that holds an integer.
fn integer_field(code: &str) -> Option<&str> {
    let (name, kind) =
        code.trim().trim_start_matches("pub(crate)").trim_start_matches("pub ").trim().split_once(": ")?;
    let kind = kind.trim_end_matches(',').trim_start_matches("Option<").trim_end_matches('>');
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    (is_name && matches!(kind, "u8" | "u16" | "u32" | "u64" | "i32" | "i64" | "NonZeroU32" | "NonZeroU64"))
        .then_some(name)
}

/// Keys with a bare integer, in block or flow style.
fn integer_keys(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split(" #").next().unwrap_or(line);
    let line = if line.trim_start().starts_with('#') { "" } else { line };
    line.split(['{', ',', '}']).filter_map(|pair| {
        let (key, value) = pair.split_once(':')?;
        let value = value.trim();
        (!value.is_empty() && value.chars().all(|c| c.is_ascii_digit() || c == '_'))
            .then_some(key.trim().trim_start_matches("- "))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, only};
    use super::check;

    #[test]
    fn a_field_without_its_unit() {
        let text = "//! c\npub struct C {\n    pub max_wait_seconds: u64,\n    pub drain: Option<u64>,\n    pub max_retries: u32,\n}\n";
        only(&found(check, &[("crates/a/src/config/mod.rs", text)]), "crates/a/src/config/mod.rs:4", "`drain`");
        assert!(found(check, &[("crates/a/src/pool.rs", text)]).is_empty());
    }

    #[test]
    fn a_key_without_its_unit() {
        let text = "drain_seconds: 30 # wait: 3\n# timeout: 3\nread: {max_attempts: 4, max_wait: 90}\nname: timeout\n";
        only(&found(check, &[("forbear.default.yaml", text)]), "forbear.default.yaml:3", "`max_wait`");
    }
}
