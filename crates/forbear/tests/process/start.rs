//! Starts that must be refused: with a code, with what happened apart from what to do, and with nothing changed.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::agent::Call;
use crate::rig::{Ended, Home, forbear, provider};

const QUIET: &str = "routes: [{match: 'GET /ok', respond: {body: {}}}]";
const ONE: &str = "providers: {p: {base_url: $BASE}}\n";
/// Where SQLite keeps the schema's version in the file's header, big-endian.
const USER_VERSION_AT: usize = 60;

fn home(config: &str) -> Home {
    Home::new(config, "http://127.0.0.1:9")
}

/// The exit code is that of wrong usage, every part is in what is said, and no panic or backtrace is.
fn said(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(ended.stdout, "", "a server that does not start greets nobody");
    let flat = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(flat.contains(part), "`{part}` is not in: {}", ended.stderr);
    }
    assert!(!flat.contains("panicked") && !flat.contains("backtrace"), "{}", ended.stderr);
}

/// The error as JSON, the only line on stderr.
fn json(ended: &Ended) -> serde_json::Value {
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{ended:?}");
    serde_json::from_str(lines[0]).expect("it is JSON")
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("the directory can be read").map(|e| e.expect("it can be read"));
    let content = |path| fs::read(path).unwrap_or_default();
    entries.map(|e| (e.file_name().to_string_lossy().into_owned(), content(e.path()))).collect()
}

#[tokio::test]
async fn a_wrong_configuration_names_file_line_key_and_what_was_meant() {
    let file = "forbear.yaml";
    for (text, parts) in [
        ("listen: 127.0.0.1:0\ndrain_secnds: 3\n", &["forbear.yaml:2", "drain_secnds", "drain_seconds"][..]),
        ("task:\n  max_retries: many\n", &["forbear.yaml:2", "max_retries", "many"]),
        ("upstream: {connect_timeout_ms: 5, ca_fle: x}\n", &["forbear.yaml:1", "ca_fle", "ca_file"]),
        ("store_bytes_max: 1\n", &["forbear.yaml:1", "store_bytes_max", "67108864 or more"]),
        ("listen: nowhere\n", &["forbear.yaml:1", "listen"]),
        ("providers: {p: {base_ulr: http://x}}\n", &["forbear.yaml:1", "base_ulr", "base_url"]),
        ("drain_seconds: [\n", &["forbear.yaml"]),
        ("\u{0}\u{1}binary", &["forbear.yaml"]),
        ("log: text\nlog: json\n", &["forbear.yaml:2", "log"]),
    ] {
        let home = home(text);
        let ended = home.refused(&[]).await;
        said(&ended, 2, parts);
        assert!(!home.data.exists(), "a refused configuration makes no data directory");

        let checked = forbear(&["config", "check", &home.config().to_string_lossy()]).await;
        said(&checked, 2, parts);

        let error = &json(&home.refused(&["--json"]).await)["error"];
        assert_eq!(error["exit"], 2);
        let faults = error["faults"].to_string();
        assert!(faults.contains(file), "{faults}");
        assert!(error["faults"]["faults"].as_array().or(error["faults"].as_array()).is_some_and(|f| !f.is_empty()));
    }
    let missing = home("");
    fs::remove_file(missing.config()).unwrap();
    said(&missing.refused(&[]).await, 2, &["forbear.yaml"]);
}

#[tokio::test]
async fn an_unknown_provider_gets_404_with_the_known_ones() {
    let provider = provider(QUIET).await;
    let home = Home::new(ONE, &provider.base_url());
    let server = home.start().await;
    for target in ["/nobody/ok", "/%70/ok", "/"] {
        let answer = server.ask(&Call::get(target)).await;
        assert!([400, 404].contains(&answer.status), "{target}: {answer:?}");
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 400 || detail.contains(", openrouter, p, pagerduty, "), "{detail}");
    }
    assert_eq!(server.ask(&Call::get("/nobody/ok")).await.status, 404);
    assert_eq!(server.ask(&Call::get("/p/ok")).await.status, 200);
    assert_eq!(provider.arrivals().len(), 1);
}

#[tokio::test]
async fn a_second_server_is_refused_on_the_port_and_on_the_data() {
    let home = home("");
    let server = home.start().await;
    let port = server.addr.to_string();
    let on_data = home.refused(&[]).await;
    said(&on_data, 2, &["FB2001", "another server uses", "Stop the other server"]);
    assert_eq!(json(&home.refused(&["--json"]).await)["error"]["code"], "FB2001");

    let other = self::home("");
    said(&other.refused(&["--listen", &port]).await, 2, &["FB3101", &port, "--listen"]);
    assert_eq!(json(&other.refused(&["--json", "--listen", &port]).await)["error"]["code"], "FB3101");
    assert!(server.not_ready().await.is_none(), "the first one does not notice");
    said(&other.refused(&["--listen", "203.0.113.1:80"]).await, 2, &["FB3101", "203.0.113.1:80"]);
}

#[tokio::test]
async fn secrets_that_others_can_read_or_that_are_none_are_refused() {
    let home = home("");
    home.start().await.stop().await;
    for (file, code) in [("master.key", "FB3002"), ("control.token", "FB3104")] {
        let path = home.data.join(file);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        said(&home.refused(&[]).await, 2, &[code, file, "chmod 600"]);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    for (file, code) in [("master.key", "FB3003"), ("control.token", "FB3104")] {
        let path = home.data.join(file);
        let good = fs::read(&path).unwrap();
        fs::write(&path, b"short").unwrap();
        said(&home.refused(&[]).await, 2, &[code, file]);
        assert_eq!(fs::read(&path).unwrap(), b"short", "nothing is put in its place");
        fs::write(&path, good).unwrap();
    }
    for (file, code) in [("master.key", "FB3001"), ("control.token", "FB3104")] {
        let path = home.data.join(file);
        let good = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        said(&home.refused(&[]).await, 2, &[code, file]);
        fs::remove_dir(&path).unwrap();
        fs::write(&path, good).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    home.start().await.stop().await;
}

/// A new key would open none of the sealed contents, and make other idempotency keys for the same references.
#[tokio::test]
async fn a_lost_master_key_is_not_quietly_replaced() {
    let home = home("");
    home.start().await.stop().await;
    fs::remove_file(home.data.join("master.key")).unwrap();
    said(&home.refused(&[]).await, 2, &["master.key", "restore"]);
    assert!(!home.data.join("master.key").exists());
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_named() {
    let mut home = home("");
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    home.data = file.join("data");
    said(&home.refused(&[]).await, 2, &["FB2006", "file/data"]);
    home.data = "/proc/forbear".into();
    said(&home.refused(&[]).await, 2, &["FB2006", "/proc/forbear"]);
    home.data = home.path().join("data");
    home.configure("master_key_file: /proc/forbear/master.key\n");
    said(&home.refused(&[]).await, 2, &["FB3001", "/proc/forbear/master.key"]);
    home.configure("upstream: {ca_file: /nowhere/ca.pem}\n");
    said(&home.refused(&[]).await, 2, &["FB3102", "/nowhere/ca.pem"]);
}

#[tokio::test]
async fn a_store_that_is_newer_foreign_or_damaged_is_refused_and_left_alone() {
    let provider = provider("routes: [{match: 'POST /w', respond: {effect: {name: w}, body: {}}}]").await;
    let home = Home::new(ONE, &provider.base_url());
    let server = home.start().await;
    for n in 0..40 {
        let write = Call::post("/p/w", format!("{{\"n\":{n}}}"));
        assert_eq!(server.ask(&write).await.status, 200);
    }
    server.stop().await;
    let database = home.data.join("journal.db");
    let good = fs::read(&database).unwrap();

    let mut newer = good.clone();
    newer[USER_VERSION_AT..USER_VERSION_AT + 4].copy_from_slice(&99u32.to_be_bytes());
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[4096..middle].fill(0xA5);
    let mut noise = 0x9E37_79B9_7F4A_7C15u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        noise.to_be_bytes()[0]
    })
    .take(good.len())
    .collect();
    let keep = "Keep the directory as it is";
    let cases: [(&str, Vec<u8>, &[&str]); 6] = [
        ("newer", newer, &["FB2002", "99", "newer program"]),
        ("random", random, &["FB2004", keep]),
        ("flipped", flipped, &["FB200", keep]),
        ("truncated", good[..good.len() / 2].to_vec(), &["FB2004", keep]),
        ("not whole pages", good[..5_000].to_vec(), &["FB2004", keep]),
        ("empty", Vec::new(), &["FB2015", "restore"]),
    ];
    for (name, bytes, parts) in cases {
        fs::write(&database, &bytes).unwrap();
        let before = files(&home.data);
        let ended = home.refused(&[]).await;
        said(&ended, 2, parts);
        let after = files(&home.data);
        if name != "empty" {
            assert_eq!(before["journal.db"].len(), after["journal.db"].len(), "{name}: the database was changed");
            assert!(before["journal.db"] == after["journal.db"], "{name}: the database was changed");
        }
        assert!(before.keys().all(|k| after.contains_key(k)), "{name}: {:?} became {:?}", before.keys(), after.keys());
        let error = &json(&home.refused(&["--json"]).await)["error"];
        assert!(error["code"].as_str().is_some_and(|c| c.starts_with("FB20")), "{name}: {error}");
        assert!(error["what_to_do"].is_string(), "{name}: {error}");
    }
    for left in ["journal.db-wal", "journal.db-shm"] {
        // What the refused starts may have made beside another file.
        let _ = fs::remove_file(home.data.join(left));
    }
    fs::write(&database, good).unwrap();
    home.start().await.stop().await;
    assert_eq!(home.reader().verify(|_| ()).unwrap().first_seq.0, 1);
}
