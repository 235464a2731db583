//! What the deciding and the proving crates must not be able to do: wait, read a clock, reach a socket or a file, draw
//! randomness, or iterate in an order that differs between two runs.

use super::Findings;
use super::source::{Source, has_word};
use super::tree::Tree;

const PURE: &[&str] = &["crates/forbear-core/src/", "crates/forbear-audit/src/"];
const CORE: &str = "crates/forbear-core/src/";

/// What is not there, and what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("async fn", "nothing here waits; hand back a command and let the driver do it"),
    ("async move", "nothing here waits; hand back a command and let the driver do it"),
    (".await", "nothing here waits; hand back a command and let the driver do it"),
    ("Instant::now", "take `Now` as an argument; only the server's clock reads clocks"),
    ("SystemTime", "take `Now` as an argument; only the server's clock reads clocks"),
    ("Timestamp::now", "take `Now` as an argument; only the server's clock reads clocks"),
    ("Zoned::now", "take `Now` as an argument; only the server's clock reads clocks"),
    ("std::fs", "no files here; take bytes as an argument"),
    ("std::net", "no sockets here; hand back a command"),
    ("std::thread", "no threads here; the driver owns them"),
    ("std::process", "no processes here"),
    ("std::env", "no environment here; take configuration as an argument"),
    ("tokio", "no runtime here; the driver owns it"),
    ("rand", "no randomness here; derive from the seed that was passed in"),
    ("getrandom", "no randomness here; derive from the seed that was passed in"),
];

const BANNED_IN_CORE: &[(&str, &str)] = &[
    ("HashMap", "hash order can reach a decision; use BTreeMap"),
    ("HashSet", "hash order can reach a decision; use BTreeSet"),
    ("f32", "money, rates and times are integers with their unit in the name"),
    ("f64", "money, rates and times are integers with their unit in the name"),
];

/// Addresses are values; only what is reached through them is not ours.
const ADDRESS_TYPES: &[&str] = &["IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr"];

const STD_MODULES: &[&str] = &["fs", "net", "thread", "process", "env"];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources().filter(|(path, _)| PURE.iter().any(|home| path.starts_with(home))) {
        let further = if path.starts_with(CORE) { BANNED_IN_CORE } else { &[] };
        for (number, line) in source.numbered().filter(|(_, line)| !line.test) {
            let code = without_address_types(&line.code);
            for (word, advice) in BANNED.iter().chain(further).filter(|(word, _)| has_word(&code, word)) {
                findings.fail(path, number, format!("`{word}` in a pure crate: {advice}"));
            }
        }
        for (number, module) in grouped_std_imports(&source) {
            findings.fail(path, number, format!("`std::{module}` in a pure crate: no input or output here"));
        }
    }
}

/// The same code without the paths of `std::net` that only name an address.
fn without_address_types(code: &str) -> String {
    let mut out = String::new();
    let mut parts = code.split("std::net::");
    out.push_str(parts.next().unwrap_or_default());
    for rest in parts {
        let (names, after) = match rest.strip_prefix('{').and_then(|group| group.split_once('}')) {
            Some((group, after)) => (group, after),
            None => rest.split_at(rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())),
        };
        if names.split(',').all(|name| ADDRESS_TYPES.contains(&name.trim())) {
            out.push_str(after);
        } else {
            out.push_str("std::net::");
            out.push_str(rest);
        }
    }
    out
}

/// `use std::{fs, collections::BTreeMap}` names modules without their full path.
fn grouped_std_imports(source: &Source<'_>) -> Vec<(usize, &'static str)> {
    let mut open = false;
    let mut found = Vec::new();
    for (number, line) in source.numbered().filter(|(_, line)| !line.test) {
        let code = line.code.trim();
        let starts = code.contains("use std::{");
        if open || starts {
            let names = code.rsplit("use std::{").next().unwrap_or(code);
            let is_named = |module: &&str| {
                names
                    .split([',', '{', '}', ' ', ';'])
                    .any(|part| part == *module || part.starts_with(&format!("{module}::")))
            };
            found.extend(STD_MODULES.iter().copied().filter(|module| is_named(module)).map(|module| (number, module)));
        }
        open = (open || starts) && !code.contains(';');
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, only};
    use super::check;

    const FILE: &str = "crates/forbear-core/src/gate.rs";

    #[test]
    fn each_banned_thing_is_found() {
        for line in [
            "async fn wait() {}",
            "let f = async move { 1 };",
            "x.await;",
            "let now = Instant::now();",
            "let now = std::time::SystemTime::now();",
            "let now = jiff::Timestamp::now();",
            "use std::fs::File;",
            "use std::net::TcpStream;",
            "use std::net::{IpAddr, UdpSocket};",
            "let ip: std::net::IpAddr = std::net::TcpListener::bind(a);",
            "use std::{collections::BTreeMap, thread};",
            "std::process::exit(1);",
            "std::env::var(name);",
            "tokio::spawn(f);",
            "rand::random();",
            "getrandom::fill(&mut b);",
            "use std::collections::HashMap;",
            "use std::collections::HashSet;",
            "fn rate() -> f64 { 0.5 }",
        ] {
            let text = format!("//! Gate.\n{line}\n");
            only(&found(check, &[(FILE, &text)]), &format!("{FILE}:2"), "pure crate");
        }
    }

    #[test]
    fn sentences_tests_and_other_crates_are_free() {
        let address = "//! x\nuse std::net::{IpAddr, Ipv4Addr};\nlet a = b.parse::<std::net::IpAddr>();\n";
        assert!(found(check, &[(FILE, address)]).is_empty());
        let sentence = "//! No `async fn`, no `Instant::now`.\nlet s = \"std::fs\"; // rand\nlet operand = 1;\n";
        let in_test =
            "//! x\n#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n    fn f() -> f64 { 1.0 }\n}\n";
        assert!(found(check, &[(FILE, sentence), ("crates/forbear-core/src/a.rs", in_test)]).is_empty());
        assert!(found(check, &[("crates/forbear-server/src/clock.rs", "//! x\nInstant::now();\n")]).is_empty());
        assert!(found(check, &[("crates/forbear-audit/src/x.rs", "//! x\nfn f() -> f64 { 1.0 }\n")]).is_empty());
    }

    #[test]
    fn code_after_tests_counts_again() {
        let text = "//! x\n#[cfg(test)]\nmod tests { }\nuse std::fs;\n";
        only(&found(check, &[(FILE, text)]), &format!("{FILE}:4"), "std::fs");
    }

    #[test]
    fn a_group_over_several_lines() {
        let text = "//! x\nuse std::{\n    collections::BTreeMap,\n    env,\n};\n";
        only(&found(check, &[(FILE, text)]), &format!("{FILE}:4"), "std::env");
    }
}
