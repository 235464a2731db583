//! What cannot be done is said: with its own exit code, what was wrong, and in lines that fit.

use std::process::{Command, Stdio};

use crate::rig::{Server, forbear, forbear_given};

fn fits(text: &str) {
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_value_that_the_server_cannot_read_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), "providers: {near: {base_url: 'http://127.0.0.1:9'}}\n");
    for (arguments, said) in [(["actions", "--before", "zz"], "before"), (["report", "--since", "yesterday"], "since")]
    {
        let ran = server.ask(&arguments);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(said) && !ran.err.contains("do what the server says"), "{}", ran.err);
        fits(&ran.err);
    }
    let none = server.ask(&["action", "nope"]);
    assert_eq!(none.code, 4, "{}", none.err);
    assert!(none.err.contains("forbear actions"), "{}", none.err);
    for arguments in [&["action", ""][..], &["task", "cancel", ""]] {
        let ran = server.ask(arguments);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(!ran.err.contains("/-/"), "{}", ran.err);
    }
    let long = server.ask(&["task", "cancel", "a\u{1b}[31m-task-whose-name-is-as-long-as-agents-like-them"]);
    assert!(long.code == 0 && !long.out.contains('\u{1b}'), "{:?}", long.out);
    fits(&long.out);
    for outcome in ["nope", "nope\u{7}"] {
        let ran = server.ask(&["actions", "--outcome", outcome]);
        assert!(ran.code == 2 && ran.err.contains("deadline_exhausted") && !ran.err.contains('\u{7}'), "{}", ran.err);
        fits(&ran.err);
    }
    let unknown = forbear(&["provider", "no\u{1b}[2J"]);
    assert!(unknown.code == 4 && !unknown.err.contains('\u{1b}'), "{:?}", unknown.err);
}

#[test]
fn what_could_not_be_written_is_no_success() {
    for arguments in [&["providers"][..], &["providers", "--json"], &["config", "default"], &["man"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forbear"));
        let done = command.args(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(1) && said.contains("space"), "{arguments:?}: {:?} {said}", done.status);
    }
}

#[test]
fn a_call_that_cannot_be_is_not_explained() {
    let response = "HTTP/1.1 200 OK\r\n\r\n";
    let ask = ["explain-response", "--provider", "stripe"];
    for (more, said) in [
        (&["--method", "G T"][..], "no method"),
        (&["--method", ""], "no method"),
        (&["--path", "no slash"], "no path"),
        (&["--path", "v1/charges"], "no path"),
        (&["--method", "POST", "--path", "/v1/charges", "--class", "read"], "looser"),
    ] {
        let ran = forbear_given(response, &[&ask, more].concat());
        assert!(ran.code == 2 && ran.err.contains(said), "{more:?}: {} {}", ran.code, ran.err);
        fits(&ran.err);
    }
    let stricter = ["--method", "GET", "--path", "/v1/charges", "--class", "uncertain_write"];
    assert_eq!(forbear_given(response, &[&ask[..], &stricter].concat()).code, 0);
}

#[test]
fn what_keeps_a_server_from_starting_is_named_itself() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let token = data.join("control.token");
    std::fs::write(&token, "short").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let start = |data: &std::path::Path| {
        forbear(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            data.to_str().unwrap(),
            "--config",
            "/dev/null",
            "--json",
        ])
    };
    let ran = start(&data);
    let error = ran.err.lines().last().unwrap_or_default().to_owned();
    let named = format!("the control token {} cannot be used", token.display());
    assert!(ran.code == 2 && error.contains(&named), "{error}");
    // A file stands where the directory would.
    let ran = start(&token.join("data"));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("one that ended is started again"), "{}", ran.err);
}
