//! The configuration: whatever the text, it is taken or refused, and a refusal points into it.

use forbear_server::config::{ConfigErrors, contract_yaml, load_text};

const TEXT_BYTES_MAX: usize = 4 * 1024;

pub(super) fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(&data[..data.len().min(TEXT_BYTES_MAX)]) else { return };
    match load_text("f", text) {
        Err(errors) => {
            assert!(errors.faults.iter().any(|fault| !fault.warning), "refused without a reason");
            points_into(text, &errors);
        }
        Ok(loaded) => {
            assert!(loaded.warnings.faults.iter().all(|fault| fault.warning));
            points_into(text, &loaded.warnings);
            // What is in force can be shown, and shown means the same.
            for (name, contract) in &loaded.compiled.policy.providers {
                let shown = contract_yaml(contract);
                let again = serde_saphyr::from_str(&shown).unwrap_or_else(|e| panic!("{name}: {e}\n{shown}"));
                assert_eq!(contract, &again, "{name}");
            }
        }
    }
}

fn points_into(text: &str, errors: &ConfigErrors) {
    // YAML ends a line at any of these.
    let breaks = text.chars().filter(|c| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')).count();
    let lines = breaks as u64 + 1;
    for fault in &errors.faults {
        assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault:?} of {lines} lines");
    }
    let shown = errors.render(false);
    assert_eq!(shown.is_empty(), errors.faults.is_empty());
    assert!(!errors.to_string().contains('\u{1b}'), "a control sequence reaches the terminal");
}
