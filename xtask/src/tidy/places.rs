//! No file knows one machine: no path of somebody's home, no host of a package registry or of its mirror.

use super::Findings;
use super::tree::Tree;

/// In halves, so that this file does not find itself.
const PLACES: &[(&str, &str)] = &[("/ho", "me/"), ("/Us", "ers/"), ("/wo", "rk/"), ("/ro", "ot/"), ("C:\\Us", "ers\\")];

const HOSTS: &[(&str, &str)] = &[
    ("crates", ".io"),
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("registry.npm", "js.org"),
    ("deb.deb", "ian.org"),
    ("proxy.go", "lang.org"),
    ("artifac", "tory"),
    ("ghcr", ".io"),
    ("docker", ".io"),
];

/// Made by cargo; the manifest check looks at its sources.
const LEFT_OUT: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock", "LICENSE"];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    let places: Vec<String> = PLACES.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let hosts: Vec<String> = HOSTS.iter().map(|(a, b)| format!("{a}{b}")).collect();
    for (path, text) in tree.files().filter(|(path, _)| !LEFT_OUT.contains(path)) {
        for (index, line) in text.lines().enumerate() {
            if let Some(place) = places.iter().find(|place| starts_a_path(line, place)) {
                let advice = format!("a path of one machine (`{place}…`); make it relative or ask the environment");
                findings.fail(path, index + 1, advice);
            }
            if let Some(host) = hosts.iter().find(|host| line.contains(host.as_str())) {
                findings.fail(
                    path,
                    index + 1,
                    format!("a registry's host (`{host}`); each machine's own tools know theirs"),
                );
            }
        }
    }
}

/// `place` at the start of a path, not in the middle of a longer one or of an address.
fn starts_a_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~' | '/' | '}' | '>' | '*'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, only};
    use super::check;

    #[test]
    fn one_machine_s_paths_and_registries_are_found() {
        for (a, b) in [("cd /ho", "me/ada/forbear"), ("\"/wo", "rk/x\""), ("see /Us", "ers/ada"), ("from pypi", ".org")]
        {
            only(&found(check, &[("docs/x.md", &format!("x\n{a}{b}\n"))]), "docs/x.md:2", "machine");
        }
    }

    #[test]
    fn addresses_and_longer_paths_are_not() {
        for (a, b) in [("http://127.0.0.1/ho", "me/x"), ("docs/wo", "rk/x"), ("{root}/wo", "rk/")] {
            assert!(found(check, &[("docs/x.md", &format!("{a}{b}\n"))]).is_empty(), "{a}{b}");
        }
    }
}
