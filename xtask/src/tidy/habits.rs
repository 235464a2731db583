//! Habits that let a fault hide: tests that are skipped or that sleep, unfinished branches, lints silenced without a
//! word.

use super::Findings;
use super::source::has_word;
use super::tree::Tree;

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources() {
        for (number, line) in source.numbered() {
            let code = line.code.trim();
            if code.starts_with("#[ignore") {
                findings.fail(path, number, "no skipped tests: mend it, or delete it and say so in the change");
            }
            if has_word(code, "todo!") || has_word(code, "unimplemented!") {
                findings.fail(path, number, "no unfinished branches: write it, or do not offer it yet");
            }
            let sleeps =
                ["thread::sleep", "time::sleep", "sleep(", "sleep_until("].iter().any(|word| has_word(code, word));
            if line.test && sleeps && !is_declaration(code) && !source.comment_near(number, "// sleep:") {
                let advice = "a test that sleeps; wait on an observable condition with a bound, use paused time, or say why after `// sleep:`";
                findings.fail(path, number, advice);
            }
            let silences = code.starts_with("#[allow(") || code.starts_with("#![allow(");
            if silences && !code.contains("reason =") && !source.comment_near(number, "//") {
                findings.fail(path, number, "a lint is silenced without a reason; add `reason = \"…\"` or a comment");
            }
        }
    }
}

fn is_declaration(code: &str) -> bool {
    code.starts_with("use ") || code.contains("fn sleep")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, only};
    use super::check;

    const FILE: &str = "crates/a/src/x.rs";

    #[test]
    fn planted_habits_are_found() {
        for (line, part) in [
            ("#[ignore]", "skipped"),
            ("#[ignore = \"slow\"]", "skipped"),
            ("fn f() { todo!() }", "unfinished"),
            ("#[allow(dead_code)]", "silenced"),
            ("#![allow(clippy::all)]", "silenced"),
        ] {
            only(&found(check, &[(FILE, &format!("//! x\n{line}\n"))]), &format!("{FILE}:2"), part);
        }
        for call in ["std::thread::sleep(d)", "tokio::time::sleep(d).await", "sleep(d).await"] {
            let text = format!("//! x\n#[cfg(test)]\nmod tests {{\n    fn f() {{ {call}; }}\n}}\n");
            only(&found(check, &[(FILE, &text)]), &format!("{FILE}:4"), "sleeps");
        }
    }

    #[test]
    fn reasons_are_accepted() {
        for line in [
            "#[allow(dead_code)] // kept for the next version of the format",
            "#[allow(dead_code, reason = \"read by the derive\")]",
            "fn f() { tokio::time::sleep(d).await; }",
            "// todo!() is banned, #[ignore] too",
        ] {
            assert!(found(check, &[(FILE, &format!("//! x\n{line}\n"))]).is_empty(), "{line}");
        }
        let told = "#[test]\nfn f() {\n    // sleep: the kernel's own timer is under test\n    thread::sleep(d);\n}\n";
        assert!(found(check, &[("crates/a/tests/it.rs", told)]).is_empty());
    }
}
