//! Files in, configurations or messages out.

mod defaults;
mod pages;
mod refused;

use super::*;
use forbear_core::policy::Rank;

fn loaded(text: &str) -> Loaded {
    load_text("forbear.yaml", text).unwrap_or_else(|e| panic!("{}", e.render(false)))
}

/// The requirement's own example, as it stands.
const FIRST: &str = include_str!("tests/first.yaml");

#[test]
fn the_requirements_example_loads_as_it_stands() {
    let loaded = loaded(FIRST);
    assert!(loaded.warnings.faults.is_empty());
    let provider = loaded.compiled.provider("billing-api").unwrap();
    assert_eq!(provider.contract.base_url, "https://api.billing.example");
    assert_eq!(provider.limits.max_concurrent_requests, 2);
    assert_eq!(provider.limits.max_delayed_requests, 25);
    assert_eq!(provider.limits.max_retries_per_minute, 10);
    let search = provider.routes.lookup("POST", "/v1/searches");
    assert_eq!(search.class, "read");
    let transfer = provider.routes.lookup("POST", "/v1/transfers");
    assert_eq!((transfer.class, transfer.idempotency_header), ("idempotent_write", Some("Idempotency-Key")));
    // Its first entry is what ships.
    assert_eq!(loaded.compiled.policy.request_classes, Policy::default().request_classes);
    assert_eq!(loaded.compiled.policy.task, Policy::default().task);
}

#[test]
fn only_named_keys_change() {
    let loaded = loaded("request_classes: {read: {max_attempts: 2}}\nupstream: {connect_timeout_ms: 7}\n");
    let mut expect = Policy::default().request_classes;
    expect.get_mut("read").unwrap().max_attempts = 2;
    assert_eq!(loaded.compiled.policy.request_classes, expect);
    assert_eq!(loaded.settings.upstream, Upstream { connect_timeout_ms: 7, ..Upstream::default() });
}

#[test]
fn a_class_of_ones_own_follows_its_rank() {
    let text = "request_classes:\n  poll: {rank: read, max_attempts: 9, max_wait_seconds: 10, retry_statuses: [503]}\n";
    let class = loaded(text).compiled.class("poll").unwrap().clone();
    assert_eq!((class.rank, class.rule.max_attempts, class.rule.deadline_seconds), (Rank::Read, 9, 900));
}

fn limits(text: &str, provider: &str) -> (u32, u32, u32) {
    let l = loaded(text).compiled.provider(provider).unwrap().limits;
    (l.max_concurrent_requests, l.max_delayed_requests, l.max_retries_per_minute)
}

#[test]
fn limits_go_from_the_contract_to_the_shared_scope_to_the_providers_own() {
    let mine = "providers: {mine: {base_url: https://m.example}}\n";
    assert_eq!(limits("", "openai"), (32, 1000, 200));
    assert_eq!(limits("", "anthropic"), (32, 1000, 200));
    assert_eq!(limits(mine, "mine"), (8, 250, 60));
    assert_eq!(limits("shared_scope: {max_concurrent_requests: 3}", "openai"), (3, 1000, 200));
    assert_eq!(limits(&format!("{mine}shared_scope: {{max_concurrent_requests: 3}}"), "mine"), (3, 250, 60));
    let both = "shared_scope: {max_concurrent_requests: 3}\n\
                providers: {openai: {scope: {max_concurrent_requests: 5}}, \
                near: {extends: openai}, far: {extends: near, scope: {max_delayed_requests: 1}}}";
    assert_eq!(limits(both, "openai"), (5, 1000, 200));
    assert_eq!(limits(both, "near"), (5, 1000, 200));
    assert_eq!(limits(both, "far"), (5, 1, 200));
    assert_eq!(limits(both, "anthropic"), (3, 1000, 200));
}

#[test]
fn a_compatible_server_extends_a_contract_and_its_own_rules_come_first() {
    let loaded = loaded(
        "providers:\n  local:\n    extends: openai\n    base_url: http://127.0.0.1:8000\n    routes:\n      - \
         {match: \"POST /v1/embeddings\", class: read}\n    codes:\n      - {at: \"body:code\", means: throttled}\n",
    );
    let (local, openai) = (loaded.compiled.provider("local").unwrap(), loaded.compiled.provider("openai").unwrap());
    assert_eq!(local.contract.base_url, "http://127.0.0.1:8000");
    assert_eq!(local.routes.lookup("POST", "/v1/embeddings").class, "read");
    assert_eq!(local.routes.lookup("POST", "/v1/chat/completions").class, "inference");
    assert_eq!(local.contract.codes[0].at, "body:code");
    assert_eq!(local.contract.codes[1..], openai.contract.codes);
    assert_eq!(local.contract.limit_headers, openai.contract.limit_headers);
    assert_eq!(openai.routes.lookup("POST", "/v1/embeddings").class, "inference");
}

#[test]
fn an_undeclared_member_of_a_new_provider_is_the_generic_one() {
    let loaded = loaded("providers: {mine: {base_url: https://m.example}}\n");
    let contract = &loaded.compiled.provider("mine").unwrap().contract;
    let expect = forbear_core::contract::Contract { base_url: "https://m.example".into(), ..Default::default() };
    assert_eq!(*contract, expect);
}

#[test]
fn what_the_command_line_says_wins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("forbear.yaml");
    std::fs::write(&path, "listen: 127.0.0.1:1\nlog: json\ndata_dir: /from/file\n").unwrap();
    let plain = load(Some(&path), &Overrides::default()).unwrap();
    assert_eq!((plain.settings.listen.port(), plain.settings.log), (1, LogFormat::Json));
    let over = Overrides { listen: "127.0.0.1:2".parse().ok(), data_dir: Some("/flag".into()), log: None };
    let flagged = load(Some(&path), &over).unwrap();
    assert_eq!(flagged.settings.listen.port(), 2);
    assert_eq!(flagged.data_dir().unwrap(), std::path::Path::new("/flag"));
    assert_eq!(flagged.settings.log, LogFormat::Json);
}

#[test]
fn the_data_directory_follows_the_environment() {
    let of = |settings: &Settings, env: &[(&str, &str)]| {
        settings.data_dir(|name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).into()))
    };
    let settings = Settings::default();
    assert_eq!(of(&settings, &[("HOME", "/h")]).unwrap(), std::path::Path::new("/h/.local/share/forbear"));
    let both = [("HOME", "/h"), ("XDG_DATA_HOME", "/x")];
    assert_eq!(of(&settings, &both).unwrap(), std::path::Path::new("/x/forbear"));
    // The base directory rules say that a relative path is no path.
    let relative = [("HOME", "/h"), ("XDG_DATA_HOME", "x")];
    assert_eq!(of(&settings, &relative).unwrap(), std::path::Path::new("/h/.local/share/forbear"));
    assert_eq!(of(&settings, &[]), None);
    assert!(settings.master_key_file(std::path::Path::new("/d")).ends_with("d/master.key"));
}
