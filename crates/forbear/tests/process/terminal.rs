//! What a person and a script see of the commands, against a live server and without one.

use serde_json::Value;

use crate::agent::Call;
use crate::rig::{Home, forbear, provider};

const SCENARIO: &str = "
routes:
  - match: 'POST /w'
    respond: {status: 201, effect: {name: w}, body: {ok: true}}
  - match: 'GET /limited'
    respond: {status: 429, headers: {Retry-After: '300'}}
";

fn fits(what: &str, text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{what}: {} columns: {line}", line.chars().count());
    }
    assert!(!text.contains('\u{1b}'), "{what}: colour where no terminal is");
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names =
        listed.filter(|l| l.starts_with("  ") && !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next());
    names.filter(|n| *n != "help").map(str::to_owned).collect()
}

#[tokio::test]
async fn the_help_of_every_command_fits_a_terminal() {
    let mut open = vec![Vec::<String>::new()];
    let mut seen = 0;
    while let Some(path) = open.pop() {
        for help in ["--help", "-h"] {
            let arguments: Vec<&str> = path.iter().map(String::as_str).chain([help]).collect();
            let ended = forbear(&arguments).await;
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{path:?}");
            fits(&path.join(" "), &ended.stdout);
            if help == "--help" {
                seen += 1;
                open.extend(commands(&ended.stdout).into_iter().map(|c| [path.clone(), vec![c]].concat()));
            }
        }
    }
    assert!(seen >= 15, "only {seen} commands were found");
}

#[tokio::test]
async fn a_live_server_shows_its_scopes_and_actions_in_words_and_as_json() {
    let provider = provider(SCENARIO).await;
    let home = Home::new("providers: {p: {base_url: $BASE}}\n", &provider.base_url());
    let server = home.start().await;
    let wrote = server.ask(&Call::post("/p/w", "{}").with("forbear-goal", "note it")).await;
    let id = wrote.field("forbear-action").to_owned();
    assert_eq!(server.ask(&Call::get("/p/limited")).await.status, 429);
    let url = format!("http://{}", server.addr);
    let data = home.data.to_string_lossy().into_owned();
    let at = ["--server", url.as_str(), "--data", data.as_str()];
    for (command, shown) in
        [(vec!["scopes"], "p/anonymous"), (vec!["actions"], id.as_str()), (vec!["action", id.as_str()], "succeeded")]
    {
        let words = forbear(&[&command[..], &at].concat()).await;
        assert_eq!((words.code, words.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(words.stdout.contains(shown), "{command:?} shows no {shown}: {}", words.stdout);
        fits(&command.join(" "), &words.stdout);
        let json = forbear(&[&command[..], &at, &["--json"]].concat()).await;
        assert_eq!(json.code, Some(0), "{json:?}");
        let lines: Vec<Value> = json.stdout.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
        assert!(!lines.is_empty() && json.stdout.contains(shown), "{command:?}: {json:?}");
    }
    let unknown = forbear(&[&["action", "act_00000000000000000000000000"][..], &at].concat()).await;
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    let nonsense = forbear(&[&["action", "nonsense"][..], &at].concat()).await;
    assert!([Some(2), Some(4)].contains(&nonsense.code), "{nonsense:?}");
    // Not the owner's token.
    std::fs::write(home.data.join("control.token"), "x".repeat(43)).unwrap();
    let stranger = forbear(&[&["scopes"][..], &at].concat()).await;
    assert_eq!(stranger.code, Some(2), "{stranger:?}");
}

#[tokio::test]
async fn without_a_server_scripts_get_their_exit_code() {
    let home = Home::new("", "");
    home.configure(&format!("data_dir: '{}'\n", home.data.display()));
    let config = home.config().to_string_lossy().into_owned();
    for command in
        [vec!["scopes"], vec!["actions"], vec!["action", "act_00000000000000000000000000"], vec!["task", "cancel", "t"]]
    {
        let at = ["--server", "http://127.0.0.1:9", "--config", config.as_str()];
        let words = forbear(&[&command[..], &at].concat()).await;
        assert_eq!((words.code, words.stdout.as_str()), (Some(3), ""), "{words:?}");
        assert!(words.stderr.contains("forbear serve"), "{words:?}");
        fits(&command.join(" "), &words.stderr);
        let json = forbear(&[&command[..], &at, &["--json"]].concat()).await;
        let error: Value = serde_json::from_str(json.stderr.trim()).expect("one JSON document");
        assert_eq!((json.code, &error["error"]["exit"]), (Some(3), &3.into()));
    }
    for wrong in [vec!["scopes", "--no-such"], vec!["nothing"], vec![], vec!["serve", "--listen", "nowhere"]] {
        let ended = forbear(&wrong).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{wrong:?}: {ended:?}");
        let ended = forbear(&[&wrong[..], &["--json"]].concat()).await;
        assert_eq!(ended.code, Some(2));
        let error: Value = serde_json::from_str(ended.stderr.trim()).expect("one JSON document");
        assert_eq!(error["error"]["exit"], 2, "{error}");
    }
}
