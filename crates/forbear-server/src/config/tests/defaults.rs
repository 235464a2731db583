//! `forbear.default.yaml`, the built-in contracts and the schema against the code.

use serde_json::Value as Json;

use super::*;
use crate::config::{built_in, tree};

#[test]
fn the_default_file_changes_nothing() {
    let (file, none) = (loaded(default_text()), loaded(""));
    assert_eq!(file.config(), none.config());
    assert_eq!(file.compiled.digest, none.compiled.digest);
    assert_eq!(file.settings, Settings::default());
    let mut policy = file.compiled.policy;
    policy.providers.clear();
    assert_eq!(policy, Policy::default());
}

/// Each leaf of the defaults stands in the file with its value; `null` only where it stands for "not said".
#[test]
fn the_default_file_says_every_default() {
    let file = tree::read(default_text()).unwrap().to_json();
    let mut defaults = serde_json::to_value(Settings::default()).unwrap();
    let policy = serde_json::to_value(Policy::default()).unwrap();
    defaults.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    let mut unsaid = Vec::new();
    compare("", &defaults, &file, &mut unsaid);
    assert_eq!(
        unsaid,
        [
            "shared_scope.kept_for_interactive = 0",
            "shared_scope.max_concurrent_requests = 8",
            "shared_scope.max_delayed_requests = 250",
            "shared_scope.max_retries_per_minute = 60"
        ]
    );
    for line in unsaid {
        let (key, value) = line.rsplit_once(" = ").unwrap();
        let key = key.rsplit_once('.').unwrap().1;
        let said = format!("{key}: null # the contract's, else {value}\n");
        assert!(default_text().contains(&said), "{said}");
    }
}

fn compare(at: &str, default: &Json, file: &Json, unsaid: &mut Vec<String>) {
    match default {
        Json::Object(members) => {
            for (key, value) in members {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                let said = file.get(key).unwrap_or_else(|| panic!("{at} is not in forbear.default.yaml"));
                compare(&at, value, said, unsaid);
            }
        }
        value if file.is_null() && !value.is_null() => unsaid.push(format!("{at} = {value}")),
        value => assert_eq!(value, file, "{at}"),
    }
}

#[test]
fn every_key_of_the_schema_is_named_in_the_default_file() {
    let mut keys = Vec::new();
    collect(&schema(), &mut keys);
    assert!(keys.len() > 60, "{}", keys.len());
    for key in keys {
        let named = default_text()
            .match_indices(&format!("{key}:"))
            .any(|(at, _)| !default_text()[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
        assert!(named, "`{key}` is not in forbear.default.yaml");
    }
}

fn collect(schema: &Json, keys: &mut Vec<String>) {
    match schema {
        Json::Object(members) => {
            if let Some(properties) = members.get("properties").and_then(Json::as_object) {
                keys.extend(properties.keys().cloned());
            }
            members.values().for_each(|v| collect(v, keys));
        }
        Json::Array(items) => items.iter().for_each(|v| collect(v, keys)),
        _ => {}
    }
}

#[test]
fn the_example_of_a_provider_in_the_default_file_loads() {
    let from = default_text().find("# providers:\n").unwrap();
    let text: String = default_text()[from..].lines().map(|l| format!("{}\n", l.strip_prefix("# ").unwrap())).collect();
    let loaded = loaded(&text);
    let provider = loaded.compiled.provider("billing-api").unwrap();
    // It names every member of a contract.
    let written = tree::read(&text).unwrap().to_json();
    let contract = serde_json::to_value(&provider.contract).unwrap();
    for key in contract.as_object().unwrap().keys() {
        assert!(written["providers"]["billing-api"].get(key).is_some(), "{key}");
    }
}

#[test]
fn the_built_in_contracts_have_the_shape_of_a_provider() {
    for (name, text) in built_in::CONTRACTS {
        let mut indented: String = text.lines().map(|l| format!("    {l}\n")).collect();
        let mut own = String::new();
        if !text.contains("\nbase_url:") {
            indented.push_str("    base_url: https://own.example\n");
            own = format!("  {name}: {{base_url: https://own.example}}\n");
        }
        // As a file of a user's, it is checked key by key.
        let loaded = loaded(&format!("providers:\n{own}  copy-of-{name}:\n{indented}"));
        let copy = &loaded.compiled.provider(&format!("copy-of-{name}")).unwrap().contract;
        assert_eq!(copy, &loaded.compiled.provider(name).unwrap().contract, "{name}");
        assert!(!copy.sources.is_empty() && loaded.warnings.faults.is_empty(), "{name}");
        // Statuses of success are looked into only where a code names one.
        let named = copy.codes.iter().any(|rule| rule.statuses.iter().any(|status| *status < 400));
        assert!(named || !copy.routes.iter().any(|route| route.disguised), "{name}");
    }
}

/// The providers that facts were gathered of, and the file that speaks of each: who is asked at one host has one contract.
const KNOWN: [(&str, &str); 45] = [
    ("openai", "openai"),
    ("azure_openai", "azure_openai"),
    ("anthropic", "anthropic"),
    ("gemini", "gemini"),
    ("vertex", "vertex"),
    ("aws", "aws"),
    ("bedrock", "bedrock"),
    ("mistral", "mistral"),
    ("cohere", "cohere"),
    ("groq", "groq"),
    ("together", "together"),
    ("openrouter", "openrouter"),
    ("xai", "xai"),
    ("deepseek", "deepseek"),
    ("huggingface", "huggingface"),
    ("github_rest", "github"),
    ("github_graphql", "github"),
    ("gitlab", "gitlab"),
    ("stripe", "stripe"),
    ("paypal", "paypal"),
    ("adyen", "adyen"),
    ("square", "square"),
    ("slack", "slack"),
    ("discord", "discord"),
    ("shopify_rest", "shopify"),
    ("shopify_graphql", "shopify"),
    ("twilio", "twilio"),
    ("sendgrid", "sendgrid"),
    ("notion", "notion"),
    ("linear", "linear"),
    ("jira", "jira"),
    ("hubspot", "hubspot"),
    ("salesforce", "salesforce"),
    ("zendesk", "zendesk"),
    ("intercom", "intercom"),
    ("pagerduty", "pagerduty"),
    ("google_workspace", "google_workspace"),
    ("msgraph", "msgraph"),
    ("x", "x"),
    ("reddit", "reddit"),
    ("airtable", "airtable"),
    ("cloudflare", "cloudflare"),
    ("vercel", "vercel"),
    ("okta", "okta"),
    // Of AWS, and read apart: its errors are XML and stand inside successes.
    ("aws", "s3"),
];

#[test]
fn every_known_provider_has_a_file_and_every_file_ships() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../providers");
    let files = std::fs::read_dir(directory).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter_map(|f| f.strip_suffix(".yaml").map(String::from)).collect();
    files.sort_unstable();
    let shipped: Vec<&str> = built_in::CONTRACTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, shipped);
    for (known, file) in KNOWN {
        assert!(shipped.contains(&file), "{known}");
    }
    let spoken_of: std::collections::BTreeSet<&str> = KNOWN.iter().map(|(_, file)| *file).collect();
    assert_eq!(spoken_of.len(), shipped.len());
}

/// `forbear provider NAME --config FILE` prints what could stand in a file.
#[test]
fn a_contract_is_written_as_it_is_read() {
    for (name, contract) in known_contracts(&loaded("")) {
        let contract = forbear_core::contract::Contract { base_url: "https://own.example".into(), ..contract };
        let text: String = contract_yaml(&contract).lines().map(|l| format!("    {l}\n")).collect();
        let again = loaded(&format!("providers:\n  copy:\n{text}"));
        assert_eq!(again.compiled.provider("copy").unwrap().contract, contract, "{name}");
    }
}

/// Without a host of its own such a contract is none that could be asked; with one it is.
#[test]
fn a_contract_without_a_host_holds_once_the_file_names_one() {
    assert!(loaded("").compiled.provider("zendesk").is_none());
    let own = loaded(
        "providers:\n  zendesk: {base_url: https://acme.zendesk.com}\n  shop: {extends: shopify, base_url: https://s.myshopify.com}\n",
    );
    assert_eq!(own.compiled.provider("zendesk").unwrap().contract.limit_headers.len(), 6);
    assert_eq!(own.compiled.provider("shop").unwrap().contract.waits.len(), 1);
    let errors = load_text("x", "providers: {zendesk: {scope: {max_concurrent_requests: 2}}}").unwrap_err();
    let said = errors.render(false);
    assert!(said.contains("base_url: https://<name>.zendesk.com"), "{said}");
}

#[test]
fn a_slip_in_a_contract_is_named_with_its_line() {
    for (text, line, what) in [
        ("providers:\n  p:\n    base_url: https://p.example\n    codez: []\n", ":4:", "codez"),
        ("providers:\n  p:\n    base_url: https://p.example\n    waits:\n      - {at: a, unit: s}\n", ":5:", "unit"),
        (
            "providers:\n  p:\n    base_url: https://p.example\n    codes:\n      - {at: txt, means: throttled}\n",
            ":5:",
            "txt",
        ),
    ] {
        let said = load_text("x.yaml", text).unwrap_err().render(false);
        assert!(said.contains(line) && said.contains(what), "{said}");
    }
}

#[test]
fn the_built_in_contracts_say_what_calls_are() {
    let loaded = loaded("");
    let check = |provider: &str, call: &str, expect: &str| {
        let (method, path) = call.split_once(' ').unwrap();
        let found = loaded.compiled.provider(provider).unwrap().routes.lookup(method, path);
        let key = found.idempotency_header.unwrap_or("-");
        assert_eq!(format!("{} {} {key}", found.template, found.class), expect, "{provider} {call}");
    };
    check("openai", "POST /v1/chat/completions", "POST /v1/chat/completions inference -");
    check("openai", "POST /v1/responses", "POST /v1/responses inference -");
    check("openai", "POST /v1/embeddings", "POST /v1/embeddings inference -");
    check("openai", "GET /v1/models/gpt-x", "GET /v1/models/{model} read -");
    check("openai", "POST /v1/files", "POST /v1/files uncertain_write -");
    check("openai", "POST /v1/threads/thread_1abc/runs", "POST /v1/threads/{id}/runs uncertain_write -");
    check("openai", "DELETE /v1/files/file-1", "DELETE /v1/files/{id} uncertain_write -");
    check("anthropic", "POST /v1/messages", "POST /v1/messages inference -");
    check("anthropic", "POST /v1/messages/count_tokens", "POST /v1/messages/count_tokens read -");
    check("anthropic", "POST /v1/messages/batches", "POST /v1/messages/batches uncertain_write -");
    check(
        "stripe",
        "POST /v1/charges/ch_3Mm/capture",
        "POST /v1/charges/{id}/capture idempotent_write Idempotency-Key",
    );
    check("stripe", "GET /v1/charges/ch_3Mm", "GET /v1/charges/{id} read -");
    check("stripe", "DELETE /v1/customers/cus_1", "DELETE /v1/customers/{id} uncertain_write -");
    check("github", "GET /repos/some/thing/issues", "GET /repos/{owner}/{repo}/issues read -");
    check("github", "POST /repos/some/thing/issues", "POST /repos/{owner}/{repo}/issues uncertain_write -");
    check("github", "POST /graphql", "POST /graphql uncertain_write -");
    for provider in loaded.compiled.providers.values() {
        assert!(provider.contract.base_url.starts_with("https://"));
    }
}

#[test]
fn the_schema_describes_every_key() {
    let schema = schema();
    for (key, member) in schema["properties"].as_object().unwrap() {
        assert!(member["description"].is_string(), "{key}");
    }
    let required = |name: &str| schema["$defs"][name]["required"].as_array().map_or(0, Vec::len);
    for (name, count) in [
        ("Contract", 0),
        ("ClassRule", 0),
        ("TaskRule", 0),
        ("RouteRule", 2),
        ("LimitHeader", 3),
        ("CodeRule", 1),
        ("WaitRule", 1),
        ("AdviceRule", 3),
        ("LookupRule", 6),
    ] {
        assert!(schema["$defs"][name].is_object(), "{name}");
        assert_eq!(required(name), count, "{name}");
    }
    assert!(schema.get("required").is_none());
}

/// An advice is found by the name of its route, which is that of a rule or of a path without one.
#[test]
fn the_built_in_advice_speaks_of_routes_that_are_called_so() {
    let mut seen = 0;
    for (name, provider) in &loaded("").compiled.providers {
        for rule in &provider.contract.advice {
            let path = rule.route.strip_prefix("GET ").unwrap();
            let path: Vec<&str> = path.split('/').map(|s| if s.starts_with('{') { "1" } else { s }).collect();
            let called = provider.routes.lookup("GET", &path.join("/"));
            assert_eq!((called.template.as_str(), called.class), (rule.route.as_str(), "read"), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}
