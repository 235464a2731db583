//! What is refused, and how it is said.

use super::*;

fn faults(text: &str) -> Vec<String> {
    let errors = load_text("f.yaml", text).expect_err(text);
    errors.to_string().lines().map(String::from).collect()
}

/// The one line that a file gets.
fn check(text: &str, expect: &str) {
    assert_eq!(faults(text).join("\n"), expect, "{text}");
}

/// The one line begins and ends like this.
fn check_ends(text: &str, starts: &str, ends: &str) {
    let lines = faults(text);
    assert_eq!(lines.len(), 1, "{text}: {lines:#?}");
    assert!(lines[0].starts_with(starts) && lines[0].ends_with(ends), "{text}\n  {}", lines[0]);
}

#[test]
fn a_mistyped_key_gets_its_line_and_a_suggestion() {
    check(
        "task:\n  max_retires: 3\n",
        "f.yaml:2:3: error FB1004: task.max_retires: there is no key `max_retires` here; did you mean `max_retries`? The \
         keys here are: max_retries, max_wait_seconds",
    );
    check_ends("lisen: 1", "f.yaml:1:1: error FB1004: lisen: there is no key `lisen` here; did you mean `listen`?", "");
    check_ends(
        "providers:\n  x:\n    base_url: https://x.example\n    route: []\n",
        "f.yaml:4:5: error FB1004: providers.x.route: there is no key `route` here; did you mean `routes`?",
        "",
    );
    check_ends(
        "max_retries: 3",
        "f.yaml:1:1: error FB1004: max_retries: there is no key `max_retries` here; `max_retries` belongs under `task`",
        "",
    );
    check_ends("banana: 1", "f.yaml:1:1: error FB1004: banana: there is no key `banana` here; the keys here are: ", "");
}

#[test]
fn a_value_of_the_wrong_kind_says_what_was_expected_with_an_example() {
    check(
        "drain_seconds: soon\n",
        "f.yaml:1:16: error FB1005: drain_seconds: expected a whole number, found text; for example `drain_seconds: 30`",
    );
    check(
        "store_bytes_max: 20 GiB\n",
        "f.yaml:1:18: error FB1005: store_bytes_max: expected a whole number, found text; the unit is in the key's \
         name: `store_bytes_max: 21474836480`",
    );
    check(
        "log: jsn\n",
        "f.yaml:1:6: error FB1005: log: `jsn` is none of the words that can stand here; did you mean `json`? One of: \
         text, json",
    );
    check(
        "task: [1]\n",
        "f.yaml:1:1: error FB1005: task: expected keys with values, found a list; for example `task: {...}`",
    );
    check(
        "request_classes: {read: {retry_statuses: 429}}\n",
        "f.yaml:1:42: error FB1005: request_classes.read.retry_statuses: expected a list, found a number; for example \
         `retry_statuses: [...]`",
    );
    check(
        "request_classes: {read: {retry_statuses: [429, x]}}\n",
        "f.yaml:1:48: error FB1005: request_classes.read.retry_statuses[1]: expected a whole number, found text; for \
         example `- 10`",
    );
    check(
        "listen: localhost\n",
        "f.yaml:1:9: error FB1005: listen: this is no address with a port; for example `listen: 127.0.0.1:8429`",
    );
    check_ends(
        "task: {max_retries: 1.5}",
        "f.yaml:1:21: error FB1005: task.max_retries: expected a whole number, ",
        "",
    );
    check_ends("task: {max_retries: -1}", "f.yaml:1:21: error FB1007: task.max_retries: -1 is not between 0 and ", "");
    check_ends(
        "providers: {x: {base_url: https://x.example, codes: [{at: \"body:a\", is: 429, means: rejected}]}}",
        "f.yaml:1:73: error FB1005: providers.x.codes[0].is: expected text, found a number",
        "put it in quotes",
    );
    check_ends("- a", "f.yaml:1:1: error FB1005: expected keys with values, found a list", "");
}

#[test]
fn a_repeated_key_and_broken_yaml() {
    check("log: text\nlog: json\n", "f.yaml:2:1: error FB1003: log: `log` stands here twice; keep one of the two");
    check_ends("task: {max_retries: 1", "f.yaml:", "indentation by spaces, `key: value`, `- item`");
    assert!(faults("task: {max_retries: 1")[0].contains("error FB1002: "));
    assert!(faults("a: 1\n---\nb: 2\n")[0].contains("error FB1002: "));
}

#[test]
fn the_cores_faults_point_at_their_lines() {
    check_ends(
        "providers:\n  x:\n    base_url: https://x.example\n    routes:\n      - {match: \"POST /a\", class: raed}\n",
        "f.yaml:5:35: error FB1009: providers.x.routes[0].class: there is no class `raed`; did you mean `read`?",
        "",
    );
    check_ends(
        "providers:\n  x:\n    base_url: https://x.example\n    routes:\n      - {match: \"POST a\", class: read}\n",
        "f.yaml:5:17: error FB1012: providers.x.routes[0].match: `POST a` is no route: the path begins with `/`",
        "",
    );
    check_ends(
        "providers:\n  x:\n    base_url: https://x.example\n    routes: [{match: \"POST /a\", class: idempotent_write}]\n",
        "f.yaml:4:40: error FB1013: providers.x.routes[0].class: `POST /a` is called idempotent",
        "",
    );
    check_ends(
        "request_classes:\n  uncertain_write:\n    unknown_resends: 1\n",
        "f.yaml:3:22: error FB1011: request_classes.uncertain_write.unknown_resends: ",
        "",
    );
    check_ends(
        "request_classes: {read: {max_attempts: 0}}",
        "f.yaml:1:40: error FB1007: request_classes.read.max_attempts: 0 is not between 1 and 100",
        "",
    );
    check_ends("providers:\n  q: {}\n", "f.yaml:2:3: error FB1014: providers.q.base_url: no base_url", "");
    check_ends("providers: {x: {base_url: \"https://x.example/\"}}", "f.yaml:1:27: error FB1014: ", "begins with one");
    check_ends(
        "body_replay_bytes_max: 300000000\nreplay_bytes_total_max: 400000000\n",
        "f.yaml:1:24: error FB1008: body_replay_bytes_max: body_replay_bytes_max 300000000 is above body_bytes_max",
        "",
    );
    check_ends("retention_days: 0", "f.yaml:1:17: error FB1007: retention_days: 0 is not from 1 to 36500", "");
    check_ends("providers: {Big Name: {base_url: https://x.example}}", "f.yaml:1:13: error FB1018: ", "");
    check_ends(
        "providers: {x: {base_url: https://x.example, credential_headers: [\"a b\"]}}",
        "f.yaml:1:67: error FB1016: providers.x.credential_headers[0]: `a b` is no header name",
        "",
    );
}

#[test]
fn a_provider_at_forbears_own_address_is_refused_by_the_address_in_force() {
    check_ends(
        "providers: {x: {base_url: \"http://localhost:8429/y\"}}",
        "f.yaml:1:27: error FB1014: providers.x.base_url: `http://localhost:8429/y` is where Forbear itself listens",
        "listen on another port",
    );
    check_ends(
        "listen: 127.0.0.1:9000\nproviders: {x: {base_url: \"http://127.0.0.1:9000\"}}",
        "f.yaml:2:27: error FB1014: ",
        "",
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.yaml");
    std::fs::write(&file, "providers: {x: {base_url: \"http://127.0.0.1:8429\"}}\n").unwrap();
    let at = |port| Overrides { listen: Some(([127, 0, 0, 1], port).into()), ..Overrides::default() };
    assert!(load(Some(&file), &at(8429)).is_err());
    assert!(load(Some(&file), &at(9000)).is_ok(), "another Forbear may be there");
}

#[test]
fn a_header_that_cannot_mean_what_is_wanted_is_refused() {
    let x = |rest: &str| format!("providers: {{x: {{base_url: https://x.example, {rest}}}}}");
    for (rest, ends) in [
        ("no_retry_headers: {Content-Length: \"0\"}", "name a field that goes from end to end"),
        ("url_headers: [Transfer-Encoding]", "name a field that goes from end to end"),
        ("credential_headers: [Forbear-Task]", "name the field that the provider itself reads or sends"),
        (
            "idempotency: {header: Authorization, retention_seconds: 60, methods: [POST]}",
            "a field for the key alone: Idempotency-Key",
        ),
    ] {
        check_ends(&x(rest), "f.yaml:1:", ends);
    }
}

#[test]
fn a_class_of_ones_own_says_its_rank_and_its_budget() {
    check_ends(
        "request_classes:\n  poll: {max_attempts: 2, max_wait_seconds: 1, retry_statuses: []}\n",
        "f.yaml:2:3: error FB1010: request_classes.poll: `poll` is no built-in class and says no rank; add `rank:`",
        "",
    );
    check_ends(
        "request_classes:\n  raed: {max_attempts: 2, max_wait_seconds: 1, retry_statuses: []}\n",
        "f.yaml:2:3: error FB1010: ",
        "",
    );
    check(
        "request_classes:\n  poll: {rank: read, max_attempts: 2, retry_statuses: []}\n",
        "f.yaml:2:3: error FB1006: request_classes.poll.max_wait_seconds: `max_wait_seconds` is missing; for example \
         `max_wait_seconds: 120`",
    );
    check_ends(
        "providers: {x: {base_url: https://x.example, routes: [{match: GET /a}]}}",
        "f.yaml:1:55: error FB1006: providers.x.routes[0].class: `class` is missing",
        "",
    );
}

#[test]
fn a_base_must_be_there_and_end_somewhere() {
    check_ends(
        "providers: {x: {extends: opnai, base_url: https://x.example}}",
        "f.yaml:1:26: error FB1009: providers.x.extends: there is no provider `opnai` to extend; did you mean `openai`?",
        "",
    );
    check_ends("providers: {q: {extends: q}}", "f.yaml:1:26: error FB1008: providers.q.extends: ", "");
    let circle =
        "providers:\n  a: {extends: b, base_url: https://a.example}\n  b: {extends: a, base_url: https://b.example}\n";
    assert_eq!(faults(circle).len(), 2);
    // A built-in name may extend itself: it is laid over what ships.
    loaded("providers: {openai: {extends: openai, base_url: https://x.example}}");
}

#[test]
fn one_run_names_everything_and_nothing_twice() {
    let text = "\
listen: nowhere
drain: 3
request_classes:
  read: {max_atempts: 2}
  pol: {rank: read, max_attempts: x, max_wait_seconds: 1, retry_statuses: []}
task: {max_retries: many, max_wait_seconds: 99999999}
providers:
  a:
    base_url: ftp://a.example
    routes:
      - {match: \"POST /x\", class: pol}
      - {match: \"POST /y\", class: nothing}
  b:
    base_url: https://b.example
    rotes: []
  c:
    base_url: https://c.example
    scope: {max_concurrent_requests: 0}
";
    let found: Vec<String> = faults(text).iter().map(|l| l.split(": ").take(3).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        found,
        [
            "f.yaml:1:9 error FB1005 listen",
            "f.yaml:2:1 error FB1004 drain",
            "f.yaml:4:10 error FB1004 request_classes.read.max_atempts",
            "f.yaml:5:35 error FB1005 request_classes.pol.max_attempts",
            "f.yaml:6:21 error FB1005 task.max_retries",
            "f.yaml:6:45 error FB1007 task.max_wait_seconds",
            "f.yaml:9:15 error FB1014 providers.a.base_url",
            "f.yaml:12:35 error FB1009 providers.a.routes[1].class",
            "f.yaml:15:5 error FB1004 providers.b.rotes",
            "f.yaml:18:38 error FB1007 providers.c.scope.max_concurrent_requests",
        ]
    );
}

#[test]
fn plain_http_away_from_this_machine_is_a_warning() {
    let text = "providers:\n  x:\n    base_url: http://10.0.0.1:8080\n";
    let warnings = loaded(text).warnings;
    assert_eq!(warnings.faults.len(), 1);
    assert!(
        warnings.to_string().starts_with("forbear.yaml:3:15: warning FB1015: providers.x.base_url: "),
        "{warnings}"
    );
    assert!(loaded("providers: {x: {base_url: \"http://127.0.0.1:8080\"}}").warnings.faults.is_empty());
}

#[test]
fn a_credential_in_the_file_is_in_no_message() {
    let lone = "providers: {x: {base_url: \"https://u:hunter2@x.example\"}}";
    // Other faults on the line and beside it show the text around them.
    let beside = "providers:\n  x:\n    base_url: https://u:hünter2@x.example\n    rotes: []\n  y: {base_url: \
                  'http://hunter2@y.example', rotes: []}\n";
    for text in [lone, beside] {
        let errors = load_text("f.yaml", text).unwrap_err();
        let json = serde_json::to_string(&errors).unwrap();
        for said in [errors.to_string(), errors.render(false), json] {
            assert!(said.contains("FB10") && !said.contains("unter2"), "{said}");
        }
    }
    assert!(load_text("f.yaml", lone).unwrap_err().to_string().contains("FB1014"));
    let shown = load_text("f.yaml", beside).unwrap_err().render(false);
    assert!(shown.contains("*********@x.example") && shown.contains("*******@y.example"), "{shown}");
}

#[test]
fn the_rendered_message_shows_the_line() {
    let errors = load_text("f.yaml", "listen: 127.0.0.1:1\ntask:\n  max_retires: 3\n").unwrap_err();
    let text = errors.render(false);
    for part in ["FB1004", "f.yaml:3:3", "max_retires: 3", "did you mean `max_retries`?"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
    assert!(errors.render(true).contains('\u{1b}'));
}

#[test]
fn faults_as_json() {
    let errors = load_text("f.yaml", "task:\n  max_retires: 3\n").unwrap_err();
    let json = serde_json::to_value(&errors).unwrap();
    assert_eq!(json[0]["code"], "FB1004");
    assert_eq!((&json[0]["line"], &json[0]["column"]), (&2.into(), &3.into()));
    assert_eq!(json[0]["key"], "task.max_retires");
    assert_eq!(json[0]["warning"], false);
    assert!(json[0]["hint"].as_str().unwrap().starts_with("did you mean"));
}

#[test]
fn a_file_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let gone = load(Some(&dir.path().join("gone.yaml")), &Overrides::default()).unwrap_err();
    assert_eq!(gone.faults[0].code, Code::FB1001);
    let path = dir.path().join("bad.yaml");
    std::fs::write(&path, b"listen: \xff").unwrap();
    assert!(load(Some(&path), &Overrides::default()).unwrap_err().to_string().contains("not UTF-8: byte 8"));
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(load(Some(&path), &Overrides::default()).unwrap_err().faults[0].code, Code::FB1001);
}

#[test]
fn hostile_yaml_is_bounded() {
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(faults(&deep)[0].contains("FB1002"));
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        laughs.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", ")));
    }
    assert!(faults(&laughs)[0].contains("FB1002"));
}

#[test]
fn every_key_with_a_value_of_another_kind_is_refused_at_its_line() {
    let lines: Vec<&str> = default_text().lines().collect();
    let mut tried = 0;
    for (i, line) in lines.iter().enumerate() {
        let Some((key, value)) = line.split_once(": ").filter(|(key, _)| !key.contains('#')) else { continue };
        let mut lines = lines.clone();
        let changed = format!("{key}: {}", if value.starts_with('[') { "{x: 1}" } else { "[[1]]" });
        lines[i] = &changed;
        let found = faults(&lines.join("\n"));
        assert!(found.iter().all(|f| f.starts_with(&format!("f.yaml:{}:", i + 1))), "{changed}: {found:#?}");
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
}

#[test]
fn a_file_cut_anywhere_is_read_or_refused() {
    let text = format!("{}{FIRST}", default_text().replace("providers: {}", ""));
    for end in (0..text.len()).step_by(307).filter(|end| text.is_char_boundary(*end)) {
        if let Err(errors) = load_text("f.yaml", &text[..end]) {
            assert!(!errors.faults.is_empty() && !errors.render(false).is_empty());
        }
    }
}
