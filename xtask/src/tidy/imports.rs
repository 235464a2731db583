//! Which crate may depend on which. A crate exists because it takes a dependency away from something; an import in the
//! wrong direction gives it back.

use super::Findings;
use super::manifest::{Section, dependencies};
use super::tree::Tree;

/// Crate, what it may import, what its tests may import besides.
const ALLOWED: &[(&str, &[&str], &[&str])] = &[
    ("forbear-core", &[], &[]),
    ("forbear-audit", &[], &[]),
    ("forbear-kernel", &[], &[]),
    ("forbear-api", &[], &[]),
    ("forbear-store", &["forbear-core", "forbear-audit"], &[]),
    ("forbear-lab", &["forbear-core", "forbear-store"], &[]),
    (
        "forbear-server",
        &["forbear-core", "forbear-audit", "forbear-kernel", "forbear-store", "forbear-api"],
        &["forbear-lab"],
    ),
    (
        "forbear",
        &["forbear-core", "forbear-audit", "forbear-store", "forbear-api", "forbear-server", "forbear-lab"],
        &[],
    ),
    ("xtask", &[], &[]),
    ("forbear-fuzz", &["forbear-core", "forbear-server"], &[]),
];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    let members = tree.files().filter(|(path, _)| *path != "Cargo.toml" && path.ends_with("/Cargo.toml"));
    for (path, text) in members {
        let name = package_name(text).unwrap_or_default();
        let Some((_, always, in_tests)) = ALLOWED.iter().find(|(krate, _, _)| *krate == name) else {
            let advice = format!(
                "`{name}` has no place in the shape; give it one in xtask/src/tidy/imports.rs and ARCHITECTURE.md"
            );
            findings.fail(path, 1, advice);
            continue;
        };
        for dependency in dependencies(text).filter(|dependency| is_ours(&dependency.name)) {
            let allowed = always.contains(&dependency.name.as_str())
                || (dependency.section == Section::Tests && in_tests.contains(&dependency.name.as_str()));
            if !allowed {
                let advice = format!(
                    "`{name}` must not import `{}`; move the code to where both may reach it, or change the shape on purpose",
                    dependency.name
                );
                findings.fail(path, dependency.line, advice);
            }
        }
    }
}

fn is_ours(dependency: &str) -> bool {
    ALLOWED.iter().any(|(krate, _, _)| *krate == dependency) || dependency.starts_with("forbear")
}

fn package_name(text: &str) -> Option<&str> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix("name")?.trim_start().strip_prefix('='))?;
    Some(value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, only};
    use super::check;

    #[test]
    fn the_shape_as_it_is_meant_passes() {
        let server = "[package]\nname = \"forbear-server\"\n[dependencies]\nforbear-core.workspace = true\n\
                      [dev-dependencies]\nforbear-lab.workspace = true\n";
        assert!(found(check, &[("crates/forbear-server/Cargo.toml", server)]).is_empty());
    }

    #[test]
    fn the_lab_is_no_dependency_of_the_server() {
        let server = "[package]\nname = \"forbear-server\"\n[dependencies]\nforbear-lab.workspace = true\n";
        only(
            &found(check, &[("crates/forbear-server/Cargo.toml", server)]),
            "crates/forbear-server/Cargo.toml:4",
            "forbear-lab",
        );
    }

    #[test]
    fn the_core_imports_nothing_of_ours_in_any_form() {
        let core =
            "[package]\nname = \"forbear-core\"\n[dev-dependencies.forbear-store]\npath = \"../forbear-store\"\n";
        only(
            &found(check, &[("crates/forbear-core/Cargo.toml", core)]),
            "crates/forbear-core/Cargo.toml:3",
            "forbear-store",
        );
        let renamed = "[package]\nname = \"forbear-api\"\n[target.'cfg(unix)'.dependencies]\nx = { package = \"forbear-core\", path = \"..\" }\n";
        only(
            &found(check, &[("crates/forbear-api/Cargo.toml", renamed)]),
            "crates/forbear-api/Cargo.toml:4",
            "forbear-core",
        );
    }

    #[test]
    fn a_new_crate_needs_a_place() {
        let other = "[package]\nname = \"forbear-utils\"\n";
        only(
            &found(check, &[("crates/forbear-utils/Cargo.toml", other)]),
            "crates/forbear-utils/Cargo.toml:1",
            "no place",
        );
    }
}
