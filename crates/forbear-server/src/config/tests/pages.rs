//! The pages against the code: an example of a fault has that fault, and its mended form has none.

use std::path::Path;

use super::*;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn examples(page: &str) -> Vec<&str> {
    page.split("```yaml\n").skip(1).map(|part| part.split("```").next().unwrap()).collect()
}

#[test]
fn each_code_has_a_page_whose_examples_hold() {
    for code in Code::ALL {
        let name = format!("{code:?}");
        let page = page(&format!("errors/{name}.md"));
        assert!(page.starts_with(&format!("# {name}: ")), "{name}");
        assert!(page.contains("\n## What happened\n") && page.contains("\n## What to do\n"), "{name}");
        let found = |text: &str| -> Vec<Code> {
            let faults = match load_text("x", text) {
                Ok(loaded) => loaded.warnings.faults,
                Err(errors) => errors.faults,
            };
            faults.iter().map(|f| f.code).collect()
        };
        match examples(&page)[..] {
            [bad, good] => {
                assert!(!found(bad).is_empty() && found(bad).iter().all(|c| *c == code), "{name}: {:?}", found(bad));
                assert_eq!(found(good), [], "{name}");
            }
            [good] => assert_eq!(found(good), [], "{name}"),
            [] => {}
            _ => panic!("{name}: more examples than a fault and its mending"),
        }
    }
}

#[test]
fn the_examples_of_the_configuration_page_load() {
    let page = page("configuration.md");
    let examples = examples(&page);
    assert_eq!(examples.len(), 7);
    for text in examples {
        assert!(loaded(text).warnings.faults.is_empty(), "{text}");
    }
}
