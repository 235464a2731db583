//! How a server starts where it may not, and how it stops.

use std::io::{BufRead as _, Read as _};
use std::net::TcpListener;
use std::time::Duration;

use forbear_lab::drill::{Call, Provided, ask};

use crate::rig::{Server, forbear};

const SLOW: &str = "\
routes:
  - match: GET /v1/slow
    respond: {delay_ms: 1500, body: {ok: true}}
  - match: GET /v1/never
    respond: {delay_ms: 600000, body: {ok: true}}
";

struct World {
    runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
    provided: Provided,
    server: Server,
}

fn world() -> World {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let provided = runtime.block_on(Provided::start("slow", SLOW)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let configuration = format!("providers: {{slow: {{base_url: '{}'}}}}\n", provided.provider.base_url());
    let server = Server::start(dir.path(), &configuration);
    World { runtime, _dir: dir, provided, server }
}

impl World {
    /// A call that is on its way to the provider.
    fn ask(&self, target: &str) -> tokio::task::JoinHandle<Result<forbear_lab::drill::Answer, String>> {
        let server = self.server.address.trim_start_matches("http://").parse().unwrap();
        let call = Call::get(target);
        let asked = self.runtime.spawn(async move { ask(server, &call, Duration::from_secs(30)).await });
        let arrived = self.provided.provider.wait_for_arrivals(1, Duration::from_secs(10));
        assert!(self.runtime.block_on(arrived).is_ok(), "the call did not arrive");
        asked
    }
}

#[test]
fn the_greeting_says_what_to_set_and_a_term_ends_it_well() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), "");
    let address = server.address.clone();
    // What it says to run does run.
    let mut rest = String::new();
    while !rest.contains("forbear action ID") {
        assert!(server.out.read_line(&mut rest).unwrap() > 0, "{rest}");
    }
    for command in ["  forbear scopes ", "  forbear actions "] {
        let line = rest.lines().find(|line| line.starts_with(command)).unwrap();
        let ran = forbear(&line.split_whitespace().skip(1).collect::<Vec<_>>());
        assert_eq!(ran.code, 0, "{line}: {}", ran.err);
    }
    server.signal("TERM");
    let (_, code) = server.ended();
    assert_eq!(code, Some(0));
    assert!(rest.contains(&format!("OPENAI_BASE_URL={address}/openai/v1")), "{rest}");
    assert!(rest.contains(&format!("ANTHROPIC_BASE_URL={address}/anthropic")), "{rest}");
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()), "{log}");
}

#[test]
fn what_is_in_flight_is_answered_before_the_end() {
    let world = world();
    let asked = world.ask("/slow/v1/slow");
    world.server.signal("TERM");
    let answer = world.runtime.block_on(asked).unwrap().unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(world.server.ended().1, Some(0));
}

#[test]
fn a_hangup_reads_the_configuration_again_and_drops_no_call() {
    let world = world();
    let asked = world.ask("/slow/v1/slow");
    let file = world.server.data.with_file_name("forbear.yaml");
    let log = || std::fs::read_to_string(world.server.data.with_file_name("log")).unwrap_or_default();
    let until = |said: &str| {
        let mut looks = 0;
        while !log().contains(said) {
            looks += 1;
            assert!(looks < 1_000_000, "{said} is not in {}", log());
            std::thread::yield_now();
        }
    };
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{before}no_such_key: 1\n")).unwrap();
    world.server.signal("HUP");
    until("nothing was reloaded");
    assert!(log().contains("no_such_key"), "{}", log());
    std::fs::write(&file, format!("{before}shared_scope: {{max_concurrent_requests: 7}}\ndrain_seconds: 3\n")).unwrap();
    world.server.signal("HUP");
    until("the configuration was read again");
    assert!(log().contains("only a restart changes this") && log().contains("drain_seconds"), "{}", log());
    let answer = world.runtime.block_on(asked).unwrap().unwrap();
    assert_eq!(answer.status, 200);
    let scopes = world.server.ask(&["scopes"]);
    assert!(scopes.out.contains("of 7"), "{}", scopes.out);
    let again = world.server.ask(&["config", "reload", "--json"]);
    assert!(again.json()["changed"] == false, "{}", again.out);
    world.server.signal("TERM");
    assert_eq!(world.server.ended().1, Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    let world = world();
    let _asked = world.ask("/slow/v1/never");
    world.server.signal("INT");
    // Until the first one was seen: the log says so.
    let log = world.server.data.with_file_name("log");
    let seen = || std::fs::read_to_string(&log).unwrap_or_default().contains("a second signal ends at once");
    let mut looks = 0;
    while !seen() {
        looks += 1;
        assert!(looks < 1_000_000, "the first signal was not seen");
        std::thread::yield_now();
    }
    world.server.signal("INT");
    assert_eq!(world.server.ended().1, Some(143));
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), "");
    let data = server.data.to_str().unwrap();
    let ran = forbear(&["serve", "--listen", "127.0.0.1:0", "--data", data, "--json"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let last = ran.err.lines().last().unwrap_or_default();
    let error: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(error["error"]["code"], "FB2001", "{}", ran.err);
}

#[test]
fn a_taken_port_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let ran = forbear(&["serve", "--listen", &address, "--data", dir.path().to_str().unwrap()]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("FB3101") && ran.err.contains("--listen"), "{}", ran.err);
}

#[test]
fn the_fake_provider_alone_says_its_address_and_what_arrived() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("s.yaml");
    std::fs::write(&scenario, "routes: [{match: GET /x, respond: {body: {ok: true}}}]\n").unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_forbear"))
        .args(["lab", "provider", "--scenario", scenario.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let greeting: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let address = greeting["base_url"].as_str().unwrap().trim_start_matches("http://").parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(ask(address, &Call::get("/x"), Duration::from_secs(10))).unwrap();
    let arrival: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((arrival["line"].as_str(), arrival["target"].as_str()), (Some("arrival"), Some("/x")));
    child.kill().unwrap();
    child.wait().unwrap();
    let wrong = forbear(&["lab", "provider", "--scenario", "no-such-file"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    let said = wrong.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

#[test]
fn a_reader_that_goes_does_not_break_it() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_forbear"))
        .args(["config", "default"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}
