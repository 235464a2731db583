use std::sync::Mutex;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use forbear_api::client::Token;
use forbear_api::control::{ActionQuery, Cancelled, LiveQuery, Named, Reopened};
use forbear_api::{Client, ClientError};
use forbear_core::breaker::Circuit;
use forbear_core::effect::Effect;
use forbear_core::event::{ActionFinished, EVENT_VERSION, Event, Fact, Outcome, Straight};
use forbear_core::ids::{ActionId, Route, RunId, ScopeId, Seq, TaskId, TenantId};
use forbear_core::input::Whose;
use forbear_core::register::WaitReason;
use forbear_core::time::Wall;
use forbear_store::{Batch, Options, Store};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::*;
use crate::reload::ReloadError;

struct World {
    dir: tempfile::TempDir,
    cancelled: Arc<Mutex<Vec<String>>>,
    router: Router,
}

/// A server's control API over a journal with straight reads of tasks `t1` to `t3`.
fn world(ready: Ready) -> World {
    let dir = tempfile::tempdir().unwrap();
    journal(dir.path());
    let cancelled = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&cancelled);
    let control = Control {
        token: ControlToken::load_or_make(dir.path()).unwrap(),
        data_dir: dir.path().to_owned(),
        ready: Arc::new(move || ready.clone()),
        scopes: Arc::new(|| Scopes::first(0, [])),
        all_live: Arc::new(|query, max| {
            let all = (1..=max as u128).map(|n| held(ActionId(n)));
            all.filter(|view| query.task.as_deref().is_none_or(|task| task == view.task.as_str())).collect()
        }),
        circuits: Arc::new(|_| {
            let circuit = Circuit::Credential { owner: TenantId::new("p/a") };
            vec![Opened { circuit, status: Some(401), code: None, failures: 5, until: Wall(9_000) }]
        }),
        live: Arc::new(|action| (action == ActionId(3)).then(|| held(action))),
        caught_up: Arc::new(|| Box::pin(std::future::ready(()))),
        cancel: Arc::new(move |whose, by| {
            let done = match &whose {
                Whose::Task(task) if task.as_str() == "not kept" => Err("the disk is full"),
                Whose::Task(task) if matches!(task.as_str(), "t2" | "t9") => Ok(0),
                Whose::Action(_) | Whose::Run(_) => Ok(0),
                Whose::Task(_) => Ok(2),
            };
            let name = match whose {
                Whose::Task(task) => task.to_string(),
                Whose::Run(run) => format!("run {run}"),
                Whose::Action(action) => action.to_string(),
            };
            seen.lock().unwrap().push(format!("{name} by {by}"));
            Box::pin(async move { done })
        }),
        reopen: Arc::new(|whose, _| {
            let done = match &whose {
                Whose::Task(task) if task.as_str() == "not kept" => Err("the disk is full"),
                whose => Ok(matches!(whose, Whose::Run(_))),
            };
            Box::pin(async move { done })
        }),
        owner_of: Arc::new(|provider, headers| {
            let credential = headers.get("x-api-key")?.to_str().ok()?;
            Some(TenantId::new(&format!("{provider}/{credential}")))
        }),
        policy: Arc::new(|| Arc::new(Compiled::new(forbear_core::policy::Policy::default()).unwrap())),
        reload: Arc::new(|| Box::pin(std::future::ready(Err(ReloadError::NoFile)))),
        names: Vec::new(),
    };
    World { dir, cancelled, router: router(control) }
}

fn held(action: ActionId) -> LiveView {
    LiveView {
        action,
        task: TaskId::new(&format!("t{}", action.0)),
        run: RunId::new("r"),
        provider: "p".into(),
        scope: ScopeId::new("p/a"),
        route: Route::new("GET /x"),
        class: "read".into(),
        came: Wall(1_000),
        stage: "waiting",
        waits_for: Some(WaitReason::Boundary),
        next_allowed_at: Some(Wall(9_000)),
        place: Some(2),
        attempts: 1,
        waited_ms: 0,
        effect: Effect::NotApplied,
    }
}

fn well() -> World {
    world(Ready { ready: true, why: None })
}

fn journal(dir: &std::path::Path) {
    let events = (1..=3u64).map(|n| Event {
        v: EVENT_VERSION,
        seq: Seq(n),
        at: Wall(1_000),
        action: Some(ActionId(u128::from(n))),
        prev: None,
        policy: "0011223344556677".into(),
        fact: Fact::ActionFinished(Box::new(ActionFinished {
            outcome: Outcome::Succeeded,
            effect: Effect::NotApplied,
            attempts: 1,
            waited_ms: 0,
            status: Some(200),
            reason: None,
            waited_for: None,
            agent_left: false,
            refused: None,
            straight: Some(Straight {
                task: TaskId::new(&format!("t{n}")),
                run: RunId::new("r"),
                scope: ScopeId::new("openai/a1"),
                tenant: None,
                route: Route::new("GET /v1/models"),
                class: "read".into(),
            }),
        })),
    });
    let store = Store::open(Options::new(dir), Box::new(|_| {})).unwrap().store;
    store.append(Batch { events: events.collect(), ..Batch::default() }).unwrap();
    store.flush_and_close().unwrap();
}

async fn ask(world: &World, method: &str, target: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
    let mut request = Request::builder().method(method).uri(target);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:8429");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let service = TowerToHyperService::new(world.router.clone());
    let response = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

fn bearer(world: &World) -> String {
    format!("Bearer {}", Token::from_data_dir(world.dir.path()).unwrap().as_str())
}

fn id(n: u128) -> String {
    ActionId(n).to_string()
}

/// The same over a real socket, with the typed client.
async fn client(world: &World) -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = world.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    Client::new(&address, Some(Token::from_data_dir(world.dir.path()).unwrap())).unwrap()
}

#[tokio::test]
async fn without_the_token_nothing_of_v1_answers_and_the_file_is_named() {
    let world = well();
    let file = world.dir.path().join("control.token").display().to_string();
    for (method, target) in ADDRESSES.iter().filter(|(_, path)| path.starts_with("/-/v1/")) {
        for headers in [vec![], vec![("authorization", "Bearer wrong")], vec![("authorization", "Basic eA==")]] {
            let (status, answered, body) = ask(&world, method, &target.replace("{id}", "x"), &headers).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {target}");
            assert!(body.contains(&file), "{body}");
            assert_eq!(answered["content-type"], "application/problem+json");
            assert!(answered.contains_key("www-authenticate"));
        }
    }
    assert!(world.cancelled.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_foreign_page_gets_nothing_even_with_the_token() {
    let world = well();
    let token = bearer(&world);
    let rebound = [("host", "evil.example"), ("authorization", token.as_str())];
    let page = [("origin", "http://evil.example"), ("authorization", token.as_str())];
    for headers in [&rebound[..], &page[..]] {
        let (status, answered, _) = ask(&world, "DELETE", "/-/v1/tasks/t1", headers).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(answered.keys().all(|k| !k.as_str().starts_with("access-control")));
    }
    assert!(world.cancelled.lock().unwrap().is_empty());
}

#[tokio::test]
async fn ready_says_why_not() {
    let (status, _, body) = ask(&well(), "GET", "/-/ready", &[]).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, r#"{"ready":true,"why":null}"#));
    let full = world(Ready { ready: false, why: Some("the disk is full".into()) });
    let (status, _, body) = ask(&full, "GET", "/-/ready", &[]).await;
    assert_eq!(
        (status, body.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, r#"{"ready":false,"why":"the disk is full"}"#)
    );
    let (status, _, body) = ask(&full, "GET", "/-/healthy", &[]).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "healthy\n"));
}

#[tokio::test]
async fn what_does_not_exist_lists_what_does() {
    let world = well();
    for target in ["/-/", "/-/nothing", "/-/v1/nothing", "/-/v2/scopes"] {
        let (status, _, body) = ask(&world, "GET", target, &[]).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{target}");
        assert!(ADDRESSES.iter().all(|(_, path)| body.contains(path)), "{body}");
    }
    let (status, headers, _) = ask(&world, "POST", "/-/ready", &[]).await;
    assert_eq!((status, headers["allow"].to_str().unwrap()), (StatusCode::METHOD_NOT_ALLOWED, "GET"));
    let token = bearer(&world);
    let (status, headers, _) = ask(&world, "POST", "/-/v1/tasks/t", &[("authorization", &token)]).await;
    assert_eq!((status, headers["allow"].to_str().unwrap()), (StatusCode::METHOD_NOT_ALLOWED, "DELETE"));
}

#[tokio::test]
async fn a_problem_type_has_its_page() {
    let (status, headers, body) = ask(&well(), "GET", "/-/problems/outcome_unknown", &[]).await;
    assert_eq!((status, headers["content-type"].to_str().unwrap()), (StatusCode::OK, "text/plain; charset=utf-8"));
    assert!(body.contains("What to do"), "{body}");
    let (status, _, body) = ask(&well(), "GET", "/-/problems/nothing", &[]).await;
    assert!(status == StatusCode::NOT_FOUND && body.contains("outcome_unknown"), "{body}");
}

#[tokio::test]
async fn actions_are_listed_filtered_and_told() {
    let world = well();
    let client = client(&world).await;
    let all = client.actions(&ActionQuery::default()).await.unwrap();
    assert_eq!(all.items.iter().map(|a| a.task.as_str()).collect::<Vec<_>>(), ["t3", "t2", "t1"]);
    let two = client.actions(&ActionQuery { limit: Some(2), ..ActionQuery::default() }).await.unwrap();
    let rest = client.actions(&ActionQuery { before: two.next, ..ActionQuery::default() }).await.unwrap();
    assert_eq!((rest.items.len(), rest.items[0].task.as_str(), rest.next), (1, "t1", None));
    let one = client.actions(&ActionQuery { task: Some("t2".into()), ..ActionQuery::default() }).await.unwrap();
    assert_eq!((one.items.len(), one.items[0].route.as_str()), (1, "GET /v1/models"));
    let open = client.actions(&ActionQuery { open: true, ..ActionQuery::default() }).await.unwrap();
    assert!(open.items.is_empty());
    let story = client.action(&id(2)).await.unwrap();
    assert_eq!((story.action.task.as_str(), story.events.len()), ("t2", 1));
    assert_eq!(story.now, None);
    let now = client.action(&id(3)).await.unwrap().now.unwrap();
    assert_eq!((now.waits_for.as_deref(), now.next_allowed_at), (Some("boundary"), Some(forbear_api::At(9_000))));
    assert!(story.events[0].text.starts_with("GET /v1/models as read, task t2; succeeded"), "{}", story.events[0].text);
}

#[tokio::test]
async fn what_is_not_on_record_is_not_found() {
    let world = well();
    let client = client(&world).await;
    for unknown in [id(9), "act_x".into(), "a/b".into()] {
        assert!(matches!(client.action(&unknown).await, Err(ClientError::NotFound { .. })), "{unknown}");
    }
}

#[tokio::test]
async fn a_query_that_cannot_be_read_is_named() {
    let world = well();
    let token = bearer(&world);
    for (query, named) in
        [("open=maybe", "open"), ("colour=red", "colour"), ("before=x", "before"), ("limit=-1", "limit")]
    {
        let (status, _, body) =
            ask(&world, "GET", &format!("/-/v1/actions?{query}"), &[("authorization", &token)]).await;
        assert!(status == StatusCode::BAD_REQUEST && body.contains(named), "{query}: {status} {body}");
    }
}

#[tokio::test]
async fn the_credential_that_made_an_action_may_see_it_and_no_other() {
    let world = well();
    let target = format!("/-/actions/{}", id(1));
    let (status, _, body) = ask(&world, "GET", &target, &[("x-api-key", "a1")]).await;
    assert!(status == StatusCode::OK && body.contains("\"t1\""), "{status} {body}");
    for other in [vec![("x-api-key", "a2")], vec![]] {
        assert_eq!(ask(&world, "GET", &target, &other).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_task_is_cancelled_by_name() {
    let world = well();
    let cancelled = client(&world).await.cancel(Named::Task, "trip/42 ü").await.unwrap();
    assert_eq!(cancelled, Cancelled { what: Named::Task, id: "trip/42 ü".into(), actions: 2, known: Some(true) });
    assert_eq!(*world.cancelled.lock().unwrap(), ["trip/42 ü by control API"]);
    let error = client(&world).await.cancel(Named::Task, &"x".repeat(257)).await.unwrap_err();
    assert_eq!(error.code(), "FB5008");
}

#[tokio::test]
async fn a_cancel_says_whether_the_task_was_ever_seen() {
    let world = well();
    let client = client(&world).await;
    for (task, known) in [("t2", true), ("t9", false)] {
        let cancelled = client.cancel(Named::Task, task).await.unwrap();
        assert_eq!(cancelled, Cancelled { what: Named::Task, id: task.into(), actions: 0, known: Some(known) });
    }
}

#[tokio::test]
async fn a_run_and_an_action_are_cancelled_and_a_cancel_is_taken_back() {
    let world = well();
    let client = client(&world).await;
    let run = client.cancel(Named::Run, "r/1").await.unwrap();
    assert_eq!(run, Cancelled { what: Named::Run, id: "r/1".into(), actions: 0, known: Some(false) });
    let one = client.cancel(Named::Action, &id(1).to_string()).await.unwrap();
    assert_eq!((one.actions, one.known), (0, Some(true)));
    for unknown in [id(99).to_string(), "nonsense".to_owned()] {
        let error = client.cancel(Named::Action, &unknown).await.unwrap_err();
        assert!(error.to_string().to_lowercase().contains("no action"), "{error}");
    }
    for (what, was_cancelled) in [(Named::Run, true), (Named::Task, false)] {
        let reopened = client.reopen(what, "r/1").await.unwrap();
        assert_eq!(reopened, Reopened { what, id: "r/1".into(), was_cancelled });
    }
    let error = client.reopen(Named::Task, "not kept").await.unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
}

#[tokio::test]
async fn what_is_held_is_listed_and_what_is_not_sent_any_more() {
    let world = well();
    let client = client(&world).await;
    let live = client.live(&LiveQuery::default()).await.unwrap();
    assert!(live.cut && live.items.len() == 1_000, "{} rows", live.items.len());
    let one = client.live(&LiveQuery { task: Some("t7".into()), ..LiveQuery::default() }).await.unwrap();
    let [row] = &one.items[..] else { panic!("{one:?}") };
    assert_eq!((row.action.as_str(), row.now.place), (id(7).as_str(), Some(2)));
    let circuits = client.circuits().await.unwrap();
    assert!(circuits.items[0].reason.contains("refused 5 times with 401"), "{circuits:?}");
    let (status, _, _) = ask(&world, "GET", "/-/v1/live?tusk=1", &[("authorization", &bearer(&world))]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn without_a_file_there_is_nothing_to_reload() {
    let world = well();
    let (status, _, body) = ask(&world, "POST", "/-/v1/config/reload", &[("authorization", &bearer(&world))]).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    assert!(body.contains("--config"), "{body}");
    assert_eq!(ask(&world, "POST", "/-/v1/config/reload", &[]).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_cancel_that_the_journal_does_not_have_is_no_success() {
    let world = well();
    let (status, _, body) =
        ask(&world, "DELETE", "/-/v1/tasks/not%20kept", &[("authorization", &bearer(&world))]).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("/-/problems/not_durable") && body.contains("the disk is full"), "{body}");
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_is_an_error_with_its_code() {
    let world = well();
    for entry in std::fs::read_dir(world.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("control.token") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let (status, _, body) = ask(&world, "GET", "/-/v1/actions", &[("authorization", &bearer(&world))]).await;
    assert!(status == StatusCode::INTERNAL_SERVER_ERROR && body.contains("FB2011"), "{status} {body}");
}

#[test]
fn a_register_that_is_not_whole_says_so() {
    let view = forbear_core::view::ScopeView {
        scope: forbear_core::ids::ScopeId::new("p/x"),
        next_allowed_at: None,
        remaining: None,
        reset_after_seconds: None,
        source: None,
        raw: None,
        in_flight: 0,
        delayed: 0,
        limits: None,
        retries_last_minute: 0,
        windows: Vec::new(),
    };
    for (known, shown, cut) in [(2, 2, false), (3, 3, false), (4, 3, true)] {
        let scopes = super::scopes_of(&vec![view.clone(); known], 3);
        assert_eq!((scopes.items.len(), scopes.cut), (shown, cut));
    }
}
