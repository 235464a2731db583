//! Each command against a running server, and without one.

use std::time::Duration;

use forbear_lab::drill::{Call, Provided, ask};

use crate::rig::{Ran, Server, forbear, forbear_given, forbear_with};

const SCENARIO: &str = "\
routes:
  - match: GET /v1/report
    then:
      - {status: 429, headers: {Retry-After: '1'}}
      - {body: {ok: true}}
  - match: GET /v1/soon
    respond: {status: 429, headers: {Retry-After: '20'}}
  - match: GET /v1/closed
    respond: {status: 429, headers: {Retry-After: '600'}}
";

struct World {
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    _provided: Provided,
    server: Server,
}

fn world() -> World {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let provided = runtime.block_on(Provided::start("reports", SCENARIO)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let configuration = format!("providers: {{reports: {{base_url: '{}'}}}}\n", provided.provider.base_url());
    let server = Server::start(dir.path(), &configuration);
    World { runtime, dir, _provided: provided, server }
}

impl World {
    fn get(&self, target: &str, task: &str) -> forbear_lab::drill::Answer {
        let call = Call::get(target).with("authorization", "Bearer s3cret").with("forbear-task", task);
        let server = self.server.address.trim_start_matches("http://").parse().unwrap();
        self.runtime.block_on(ask(server, &call, Duration::from_secs(30))).unwrap()
    }
}

#[test]
fn a_report_says_what_waited_and_for_how_long() {
    let world = world();
    assert_eq!(world.get("/reports/v1/report", "weekly").status, 200);
    let mut report = serde_json::Value::Null;
    for _ in 0..100 {
        report = world.server.ask(&["report", "--json"]).json();
        if !report["providers"][0].is_null() {
            break;
        }
    }
    let total = &report["providers"][0]["total"];
    assert_eq!((&total["calls"], &total["sends"], &total["done"]["retries"]), (&1.into(), &2.into(), &1.into()));
    assert!(total["done"]["waits"]["max_ms"].as_u64() >= Some(1_000), "{report}");
    let words = world.server.ask(&["report", "--since", "7d"]).out;
    assert!(words.contains("1 call, 2 sends\n  done: sent again 1; 1 wait: 1."), "{words}");
    assert!(words.lines().all(|l| l.chars().count() <= 80), "{words}");
    let wrong = world.server.ask(&["report", "--since", "yesterday", "--json"]);
    assert!(
        wrong.code != 0 && wrong.error()["message"].as_str().is_some_and(|m| m.contains("7d")),
        "{:?}",
        wrong.error()
    );
}

#[test]
fn routes_without_a_rule_are_proposed_as_a_configuration_that_holds() {
    let world = world();
    for id in [7, 8] {
        assert_eq!(world.get(&format!("/reports/v1/things/{id}"), "weekly").status, 404);
    }
    let mut found = serde_json::Value::Null;
    for _ in 0..100 {
        found = world.server.ask(&["routes", "suggest", "--provider", "reports", "--json"]).json();
        if found["items"][0]["calls"] == 2 {
            break;
        }
    }
    let item = &found["items"][0];
    assert_eq!((&item["match"], &item["class"]), (&"GET /v1/things/{id}".into(), &"read".into()), "{found}");
    assert_eq!(item["statuses"], serde_json::json!({"404": 2}));
    let words = world.server.ask(&["routes", "suggest"]).out;
    assert!(words.lines().all(|l| l.chars().count() <= 80), "{words}");
    let file = world.dir.path().join("pasted.yaml");
    std::fs::write(&file, words.replace("    routes:", "    base_url: https://own.example\n    routes:")).unwrap();
    assert_eq!(forbear(&["config", "check", file.to_str().unwrap()]).code, 0, "{words}");
    let none = world.server.ask(&["routes", "suggest", "--provider", "none", "--json"]);
    assert_eq!(none.code, 4, "{}", none.out);
}

#[test]
fn an_action_is_listed_and_told_from_its_first_word_to_its_end() {
    let world = world();
    let answer = world.get("/reports/v1/report", "weekly");
    assert_eq!(answer.status, 200);
    let id = answer.field("forbear-action").to_owned();

    // A read's end is on record within some milliseconds of its answer.
    let mut list = serde_json::Value::Null;
    for _ in 0..100 {
        list = world.server.ask(&["actions", "--task", "weekly", "--json"]).json();
        if !list["items"][0]["outcome"].is_null() {
            break;
        }
    }
    assert_eq!(
        (list["items"][0]["action"].as_str(), list["items"][0]["outcome"].as_str()),
        (Some(&*id), Some("succeeded"))
    );
    assert_eq!(list["items"][0]["attempts"], 2);
    let words = world.server.ask(&["actions"]);
    assert!(words.out.contains(&id) && words.out.contains("2 tries, 1."), "{}", words.out);
    assert!(world.server.ask(&["actions", "--task", "other"]).out.contains("No action matches"));

    let story = world.server.ask(&["action", &id]);
    for said in ["status 429", "retry_after: `1`", "attempt 2 waits 1.", "succeeded after 2 attempts"] {
        assert!(story.out.contains(said), "`{said}` is not in\n{}", story.out);
    }
    for text in [&words.out, &story.out] {
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("s3cret"), "{text}");
    }
    let events = world.server.ask(&["action", &id, "--json"]).json();
    let kinds: Vec<&str> = events["events"].as_array().unwrap().iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(kinds.first().zip(kinds.last()), Some((&"action_requested", &"action_finished")), "{kinds:?}");
    let unknown = world.server.ask(&["action", "act_00000000000000000000000000", "--json"]);
    assert_eq!((unknown.code, unknown.error()["code"].as_str()), (4, Some("FB5007")));
}

#[test]
fn an_action_that_waits_says_for_how_long_so_far() {
    let world = world();
    let server = world.server.address.trim_start_matches("http://").parse().unwrap();
    let call = Call::get("/reports/v1/soon").with("authorization", "Bearer s3cret");
    let asked = world.runtime.spawn(async move { ask(server, &call, Duration::from_secs(30)).await });
    let first = |list: &serde_json::Value| list["items"][0]["action"].as_str().map(str::to_owned);
    let id = std::iter::repeat_with(|| first(&world.server.ask(&["actions", "--json"]).json())).take(1_000);
    let id = id.flatten().next().unwrap();
    let mut looks = std::iter::repeat_with(|| world.server.ask(&["action", &id]).out).take(1_000);
    let said = looks.find(|said| said.contains("now           waits") && !said.contains("waited 0 ms"));
    assert!(said.as_ref().is_some_and(|said| said.contains("attempts 1, waited ")), "{said:?}");
    asked.abort();
}

#[test]
fn the_register_says_when_a_closed_scope_opens() {
    let world = world();
    assert!(world.server.ask(&["scopes"]).out.contains("No scope is known yet"));
    let answer = world.get("/reports/v1/closed", "t");
    assert_ne!(answer.status, 200);
    let rows = world.server.ask(&["scopes", "--json"]).json();
    let row = &rows["items"][0];
    assert_eq!((row["provider"].as_str(), row["source"].as_str()), (Some("reports"), Some("retry_after")));
    for member in ["scope", "request_class", "next_allowed_at", "remaining", "reset_after_seconds"] {
        assert!(row.get(member).is_some(), "{member} is not in {row}");
    }
    let words = world.server.ask(&["scopes"]);
    assert!(words.out.contains("retry_after") && words.out.lines().all(|l| l.chars().count() <= 80), "{}", words.out);
}

#[test]
fn a_cancelled_task_is_refused_from_then_on() {
    let world = world();
    let cancelled = world.server.ask(&["task", "cancel", "trip 42", "--json"]);
    assert_eq!(cancelled.json(), serde_json::json!({"what": "task", "id": "trip 42", "actions": 0, "known": false}));
    assert_eq!(world.get("/reports/v1/report", "trip 42").status, 410);
    assert!(world.server.ask(&["task", "reopen", "trip 42"]).out.contains("are taken again"));
    assert_eq!(world.get("/reports/v1/report", "trip 42").status, 200);
    assert!(world.server.ask(&["run", "cancel", "some run"]).out.contains("no call of it is on record"));
    assert!(world.server.ask(&["live"]).out.contains("Nothing waits"));
    assert!(world.server.ask(&["circuits"]).out.contains("No circuit is open"));
    assert!(world.server.ask(&["task", "cancel", "trip 43"]).out.contains("no call of it is on record"));
    assert_eq!(world.get("/reports/v1/report", "trip 44").status, 200);
    let cancelled = world.server.ask(&["task", "cancel", "trip 44"]);
    assert!(cancelled.out.contains("nothing of it was under way"), "{}", cancelled.out);
}

#[test]
fn without_a_server_the_command_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("forbear.yaml");
    std::fs::write(&config, format!("data_dir: '{}'\n", dir.path().join("none").display())).unwrap();
    let at = ["--server", "http://127.0.0.1:1", "--config", config.to_str().unwrap()];
    for command in [&["scopes"][..], &["actions"], &["action", "act_1"], &["task", "cancel", "t"]] {
        let ran = forbear(&[command, &at].concat());
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.out.is_empty() && ran.err.contains("FB5002") && ran.err.contains("forbear serve"), "{}", ran.err);
    }
    let json = forbear(&[&["scopes", "--json"], &at[..]].concat());
    assert_eq!(json.error()["exit"], 3);
}

#[test]
fn a_data_directory_leads_to_its_server() {
    let mut world = world();
    let data = world.server.data.to_str().unwrap().to_owned();
    let config = world.server.data.with_file_name("found.yaml");
    std::fs::write(&config, format!("data_dir: '{data}'\n")).unwrap();
    for at in [["--data", &data], ["--config", config.to_str().unwrap()]] {
        let scopes = [&["scopes"][..], &at].concat();
        // What a flag says is not undone by the environment.
        for (name, value) in [("X", ""), ("FORBEAR_TOKEN", "another"), ("FORBEAR_SERVER", "http://127.0.0.1:1")] {
            let ran = forbear_with(name, value, &scopes);
            assert!(ran.code == 0 && ran.out.contains("No scope is known yet"), "{name}: {}{}", ran.out, ran.err);
        }
    }
    world.server.child.kill().unwrap();
    world.server.child.wait().unwrap();
    let ran = forbear(&["scopes", "--data", &data]);
    let said: String = ran.err.split_whitespace().collect();
    assert!(ran.code == 3 && said.contains("FB5002") && said.contains(&data), "{}", ran.err);
    assert!(ran.err.contains(&world.server.address), "{}", ran.err);
    let none = forbear_with("FORBEAR_TOKEN", "t", &["scopes", "--data", "no-such-directory"]);
    assert!(none.code == 4 && none.err.contains("there is no directory no-such-directory"), "{}", none.err);
}

#[test]
fn another_servers_token_is_refused_with_the_right_file() {
    let world = world();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("control.token"), "x".repeat(43)).unwrap();
    let ran = forbear(&["scopes", "--server", &world.server.address, "--data", other.path().to_str().unwrap()]);
    assert_eq!(ran.code, 2);
    let file = world.server.data.join("control.token").display().to_string();
    let said: String = ran.err.split_whitespace().collect();
    assert!(said.contains("FB5006") && said.contains(&file), "{}", ran.err);
}

#[test]
fn the_default_configuration_is_right_and_a_wrong_one_is_named_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("forbear.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, forbear(&["config", "default"]).out).unwrap();
    let right = forbear(&["config", "check", path]);
    assert_eq!(right.code, 0, "{}", right.err);
    assert_eq!(forbear(&["config", "check", path, "--json"]).json()["holds"], true);
    let counted = |ran: &Ran, n: u32| {
        let said = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!(" {n} added or changed here")), "{said}");
    };
    counted(&right, 0);
    let own = "providers: {mine: {base_url: 'http://127.0.0.1:1'}, stripe: {scope: {max_concurrent_requests: 3}}}\n";
    std::fs::write(&file, own).unwrap();
    counted(&forbear(&["config", "check", path]), 2);
    let changed = &forbear(&["config", "check", path, "--json"]).json()["changed"];
    assert_eq!(*changed, serde_json::json!(["mine", "stripe"]));
    std::fs::write(&file, "task:\n  max_retires: 3\n").unwrap();
    let wrong = forbear(&["config", "check", path]);
    assert_eq!((wrong.code, wrong.out.as_str()), (2, ""));
    assert!(wrong.err.contains("max_retries") && wrong.err.contains(":2:"), "{}", wrong.err);
    let error = forbear(&["config", "check", path, "--json"]).error();
    assert_eq!((error["exit"].as_u64(), error["faults"][0]["line"].as_u64()), (Some(2), Some(2)), "{error}");
    let schema = forbear(&["config", "schema"]).json();
    assert!(schema["properties"]["request_classes"].is_object());
    assert_eq!(forbear(&["config", "check", "no-such-file"]).code, 2);
}

#[test]
fn completions_and_the_man_page_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = forbear(&["completions", shell]);
        assert!(ran.code == 0 && ran.out.contains("drill"), "{shell}: {}", ran.err);
    }
    let man = forbear(&["man"]);
    assert!(man.code == 0 && man.out.contains("FORBEAR TASK CANCEL") && man.out.contains("Exit codes"), "{}", man.err);
}

#[test]
fn wrong_usage_ends_with_2_and_as_json_where_asked() {
    assert_eq!(forbear(&["nothing"]).code, 2);
    assert_eq!(forbear(&[]).code, 2);
    assert_eq!(forbear(&["action"]).code, 2);
    let ran = forbear(&["nothing", "--json"]);
    assert_eq!((ran.code, ran.error()["exit"].as_u64()), (2, Some(2)));
    assert_eq!(forbear(&["--help"]).code, 0);
}

#[test]
fn providers_are_listed_and_one_is_shown_with_its_sources() {
    let list = forbear(&["providers"]);
    assert!(list.code == 0 && list.out.lines().all(|line| line.chars().count() <= 80), "{}", list.out);
    let items = forbear(&["providers", "--json"]).json()["items"].as_array().unwrap().clone();
    assert!(items.len() > 40 && items.iter().all(|item| !item["sources"].as_array().unwrap().is_empty()));
    let shown = forbear(&["provider", "stripe"]);
    assert!(shown.out.contains("docs.stripe.com/rate-limits"), "{}", shown.out);
    assert_eq!(forbear(&["provider", "stripe", "--json"]).json()["idempotency"]["retention_seconds"], 86_400);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("forbear.yaml");
    std::fs::write(&file, "providers: {stripe: {scope: {max_concurrent_requests: 3}}}\n").unwrap();
    let merged = forbear(&["provider", "stripe", "--config", file.to_str().unwrap()]);
    assert!(
        merged.out.contains("max_concurrent_requests: 3") && merged.out.contains("docs.stripe.com"),
        "{}",
        merged.out
    );

    let unknown = forbear(&["provider", "strip", "--json"]);
    assert_eq!((unknown.code, unknown.error()["exit"].as_u64()), (4, Some(4)));
    assert!(unknown.error()["what_to_do"].as_str().unwrap().contains("forbear providers"));
}

#[test]
fn a_recorded_response_is_explained() {
    let response = "HTTP/2 429\r\nretry-after: 7\r\n\r\n{\"error\":{\"code\":\"rate_limit_exceeded\"}}";
    let ask = ["explain-response", "--provider", "openai"];
    let told = forbear_given(response, &ask);
    assert_eq!(told.code, 0, "{}", told.err);
    for said in ["throttled", "code error.code=rate_limit_exceeded", "in 7.0 s, by retry after `7`", "retry: "] {
        assert!(told.out.contains(said), "{said} is not in\n{}", told.out);
    }
    let json = forbear_given(response, &[&ask[..], &["--method", "POST", "--json"]].concat()).json();
    assert_eq!(json["classification"]["boundary"]["wait_ms"], 7_000);
    assert_eq!((json["class"].as_str(), json["effect"].as_str()), (Some("uncertain_write"), Some("not_applied")));

    let stream = "HTTP/2 200\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"error\":{\"code\":\"server_is_overloaded\"}}\n\n";
    let told = forbear_given(stream, &[&ask[..], &["--class", "inference"]].concat());
    for said in ["unavailable", "error event, code error.code=server_is_overloaded", "retry: "] {
        assert!(told.out.contains(said), "{said} is not in\n{}", told.out);
    }

    let bad = forbear_given("what?", &ask);
    assert!(bad.code == 2 && bad.err.contains("curl -si"), "{}", bad.err);
    let class = forbear_given(response, &[&ask[..], &["--class", "raed", "--json"]].concat());
    assert_eq!(class.code, 2);
    assert!(class.error()["what_to_do"].as_str().unwrap().contains("idempotent_write"));
}
