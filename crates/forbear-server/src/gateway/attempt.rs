//! One send: what goes out, what came back, what that proves. It decides nothing and repeats nothing.

use std::cell::OnceCell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forbear_core::classify::{Classification, ResponseFacts, classify, classify_event, is_event_stream};
use forbear_core::command::{Commands, Dispatch, Stamp};
use forbear_core::effect::Evidence;
use forbear_core::event::Outcome;
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::{BodyEnd, HeadSeen, Input, Report};
use http::header::HOST;
use http::{Request, Response, response};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Gateway;
use super::advice::FORBEAR_ADVICE;
use super::call::Call;
use super::copy::{AnswerCopy, Recorder};
use super::marks::Marks;
use super::secrets::Secrets;
use super::{advice, disguise, location, opening, own};
use crate::http::answer::{self, AnswerBody, BodyEvent};
use crate::http::begun::{Begun, begin};
use crate::http::body::{BodyError, RequestBody, UpstreamBody};
use crate::http::headers;
use crate::http::relay::{self, AgentBody, FOLLOW_MAX};
use crate::http::upstream::{self, Answer, SendError, SendOptions};
use crate::shard::Shard;

/// How much of a refusal's body is read for its meaning.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// How long that may take: its head has said the most of it.
const REFUSAL_READ_MAX: Duration = Duration::from_secs(5);

/// A provider's answer, held until the core says what becomes of it.
pub(super) struct Answered {
    pub(super) attempt: AttemptNo,
    head: response::Parts,
    body: Held,
    /// Where it is an event stream that did not begin with an error.
    marks: Option<Marks>,
}

enum Held {
    /// Not read yet.
    Open(AnswerBody),
    /// A refusal, or what may be one in disguise or the beginning of a stream, read for its meaning.
    Begun(Begun),
}

impl Call {
    /// Makes one attempt and tells the core; what the core says next comes back.
    pub(super) async fn attempt(&mut self, dispatch: Dispatch) -> Commands {
        // Its only sending must not end by what is not an answer to it.
        let is_once = matches!(self.body, Some(RequestBody::Once(_)));
        let Some(request) = self.request() else {
            let report = Report {
                evidence: Evidence::NotSent,
                answer: None,
                transport: Some("the body was streamed once and cannot be sent again".into()),
            };
            return self.report(dispatch.attempt, report);
        };
        let gateway = Arc::clone(&self.gateway);
        let clock = *gateway.shard.clock();
        let left = clock.instant(dispatch.give_up_at).saturating_duration_since(Instant::now());
        let options = SendOptions {
            not_after: clock.instant(dispatch.send_not_after),
            fresh: dispatch.fresh_connection || is_once,
            connect_timeout: gateway.connect_timeout,
            head_timeout: gateway.head_timeout.min(left),
        };
        let confirm = {
            let shard = Arc::clone(&gateway.shard);
            move || shard.confirm_send(&dispatch)
        };
        let mailbox = Arc::clone(&self.mailbox);
        let left = self.left.clone();
        let sent = tokio::select! {
            biased;
            sent = async {
                // A refusal that comes slowly is not waited for by who was cancelled.
                match upstream::send(&gateway.pool, &self.understood.provider.origin, request, options, confirm).await {
                    Ok(answer) => Ok(self.understand_answer(dispatch.attempt, answer).await),
                    Err(e) => Err(e),
                }
            } => sent,
            () = mailbox.cancelled() => {
                self.heed_refusal();
                return Commands::new();
            }
            () = left_for_long(left.as_deref(), &gateway.shard, dispatch.action) => {
                let why = format!("its agent left, and no answer came in the {} s after that", FOLLOW_MAX.as_secs());
                Ok(Report { evidence: Evidence::Unknown, answer: None, transport: Some(why) })
            }
        };
        let report = match sent {
            Ok(report) => report,
            Err(e) if e.held_back => return Commands::new(),
            Err(e) => {
                // A body that broke off says before its connection does that the agent has left.
                let has_left = matches!(e.body_error, Some(BodyError::Broken(_) | BodyError::Malformed(_)));
                let report = self.failed(e);
                if !has_left {
                    return self.report(dispatch.attempt, report);
                }
                let mut commands = gateway.shard.tell(self.action(), Input::AgentLeft { action: self.action() });
                commands.extend(self.report(dispatch.attempt, report));
                return commands;
            }
        };
        self.report(dispatch.attempt, report)
    }

    fn report(&self, attempt: AttemptNo, report: Report) -> Commands {
        let action = self.action();
        self.gateway.shard.tell(action, Input::Result { action, attempt, report: Box::new(report) })
    }

    fn request(&mut self) -> Option<Request<UpstreamBody>> {
        let body = match self.body.take()? {
            RequestBody::Replayable(replay) => {
                let body = UpstreamBody::replay(&replay);
                self.body = Some(RequestBody::Replayable(replay));
                body
            }
            RequestBody::Once(once) => {
                // What was read of it leaves now.
                self.hold_only(0);
                UpstreamBody::once(once)
            }
        };
        let u = &self.understood;
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = u.uri.clone();
        *request.headers_mut() = headers::for_provider(&self.head.headers, self.head.version, &u.provider.origin);
        self.gateway.hop.mark(&u.provider.origin, request.headers_mut());
        if let Some((name, value)) = &u.key_field {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        // The spelling of the fields travels here.
        *request.extensions_mut() = self.head.extensions.clone();
        Some(request)
    }

    async fn understand_answer(&mut self, attempt: AttemptNo, answer: Answer) -> Report {
        let Answer { head, body, .. } = answer;
        let status = head.status.as_u16();
        let received = self.gateway.shard.clock().now();
        let contract = &self.understood.provider.compiled.contract;
        let is_stream = status < 400 && is_event_stream(&head.headers);
        let mut marks = is_stream.then(|| Marks::new(contract.stream.clone()));
        let mut error = None;
        let (held, read) = if status < 400 && self.understood.disguised && disguise::is_possible(contract, &head) {
            let begun = disguise::begin(contract, &head, body).await;
            let bytes = begun.bytes();
            (Held::Begun(begun), Some(bytes))
        } else if let Some(marks) = marks.as_mut().filter(|_| !contract.stream.errors.is_empty()) {
            let (begun, data) = opening::begin(&contract.stream, body).await;
            marks.pass(&begun.bytes());
            error = data;
            (Held::Begun(begun), None)
        } else if status < 400 {
            (Held::Open(body), None)
        } else {
            let facts = ResponseFacts { status, headers: &head.headers, body: None, received };
            let mut classification = classify(contract, self.understood.class.rank, &facts);
            self.withhold_credentials(&mut classification);
            self.refused = Some((attempt, HeadSeen { status, classification }));
            let mut begun = pin!(begin(body, REFUSAL_BYTES_MAX, REFUSAL_READ_MAX));
            // What came with the head is read first; then nobody else is to run into what the head has said already.
            let begun = match poll_fn(|cx| Poll::Ready(begun.as_mut().poll(cx))).await {
                Poll::Ready(begun) => begun,
                Poll::Pending => {
                    self.heed_refusal();
                    begun.await
                }
            };
            self.refused = None;
            let bytes = begun.bytes();
            (Held::Begun(begun), Some(bytes))
        };
        let u = &self.understood;
        let contract = &u.provider.compiled.contract;
        let facts =
            ResponseFacts { status, headers: &head.headers, body: error.as_deref().or(read.as_deref()), received };
        let mut classification = match &error {
            Some(_) => classify_event(contract, &facts),
            None => classify(contract, u.class.rank, &facts),
        };
        self.withhold_credentials(&mut classification);
        let marks = marks.filter(|_| error.is_none());
        // A refusal that was cut may have said more of it than its head.
        let is_cut = status >= 400 && matches!(&held, Held::Begun(begun) if begun.cut().is_some());
        let evidence = if is_cut { Evidence::AnsweredPartially } else { Evidence::Answered };
        self.answered = Some(Answered { attempt, head, body: held, marks });
        let answer = Some(HeadSeen { status, classification });
        Report { evidence, answer, transport: None }
    }

    /// A provider may say a credential back; none of it is recorded.
    fn withhold_credentials(&self, classification: &mut Classification) {
        // Most answers have no words that could.
        let secrets = OnceCell::new();
        let of_call = || Secrets::of(&self.head.headers, &self.understood.uri, &self.understood.provider.credentials);
        classification.withhold(|text| secrets.get_or_init(of_call).are_in(text));
    }

    /// What a refusal's head said of the scope holds, though its body was not read to the end.
    pub(super) fn heed_refusal(&mut self) {
        if let Some((attempt, head)) = self.refused.take() {
            let (action, scope, lane) = (self.action(), self.understood.scope.clone(), self.quota().lane);
            self.gateway.shard.note(Input::Refused { action, attempt, scope, lane, head: Box::new(head) });
        }
    }

    fn failed(&mut self, e: SendError) -> Report {
        self.body_error = e.body_error;
        Report { evidence: e.evidence, answer: None, transport: Some(e.what) }
    }
}

/// Ready when the agent of a write has left so long ago that its answer is not waited for any more, and no other call waits
/// for it: until then the request is open at the provider, and so its slot is taken.
async fn left_for_long(left: Option<&Notify>, shard: &Shard, action: ActionId) {
    match left {
        Some(left) => left.notified().await,
        None => std::future::pending().await,
    }
    tokio::time::sleep(FOLLOW_MAX).await;
    while shard.is_heard(action) {
        tokio::time::sleep(FOLLOW_MAX).await;
    }
}

impl Answered {
    /// The provider's answer as the agent gets it. Its body reports its own end to the core.
    pub(super) fn relay(self, call: &Call, attempt: AttemptNo, stamp: &Stamp) -> Response<AgentBody> {
        let provider = &call.understood.provider;
        let mut head = self.head;
        let advice = advice::of(call, &head.headers);
        let target = call.head.uri.path_and_query().map_or("", |p| p.as_str());
        let back = location::WayBack {
            prefix: target.get(..call.understood.prefix_bytes).unwrap_or_default(),
            authority: call.head.headers.get(HOST).and_then(|v| v.to_str().ok()).or(call
                .head
                .uri
                .authority()
                .map(|a| a.as_str())),
        };
        // In place: a field that repeats keeps all its lines, and every field its turn.
        for (name, value) in &mut head.headers {
            if provider.url_fields.contains(name)
                && let Some(ours) = location::rewritten(provider, back, name, value)
            {
                *value = ours;
            }
        }
        let writes = call.understood.class.rank.writes();
        let outlives_agent = call.outlives_agent();
        let mut recorder = outlives_agent.then(|| Recorder::new(head.clone()));
        if let (Some(recorder), Held::Begun(begun)) = (&mut recorder, &self.body) {
            recorder.pass(&begun.bytes());
        }
        let (gateway, follows) = (Arc::clone(&call.gateway), !writes && outlives_agent);
        let watcher = watcher(gateway, call.action(), attempt, self.marks, recorder, follows);
        let body = match self.body {
            Held::Open(mut body) => {
                body.watch(watcher);
                AgentBody::answer(body)
            }
            Held::Begun(begun) => AgentBody::begun(begun.watched(watcher)),
        };
        let body = match (writes, outlives_agent) {
            (true, _) => body.followed(),
            (false, true) => body.followed_until_cut(Arc::clone(&call.mailbox)),
            (false, false) => body.cut_by(Arc::clone(&call.mailbox)),
        };
        let mut response = relay::answer(head, body, []);
        let fields = response.headers_mut();
        own::stamp(fields, call.action(), stamp);
        if let Some(advice) = advice {
            fields.insert(FORBEAR_ADVICE, advice);
        }
        // Only watched, its clients are told nothing that the provider did not say.
        if stamp.outcome != Outcome::Succeeded && !provider.compiled.observes {
            own::no_retry(fields, provider);
        }
        response
    }
}

/// Follows a relayed body and tells the core how it ended, once.
fn watcher(
    gateway: Arc<Gateway>,
    action: ActionId,
    attempt: AttemptNo,
    mut marks: Option<Marks>,
    mut recorder: Option<Recorder>,
    keep_copy: bool,
) -> answer::Watcher {
    let mut read = None;
    Box::new(move |event| match event {
        BodyEvent::Data(data) => {
            if let Some(marks) = &mut marks {
                marks.pass(data);
            }
            if let Some(recorder) = &mut recorder {
                recorder.pass(data);
            }
        }
        BodyEvent::Read(how) => {
            let end = end(how, &mut marks);
            let copy = copied(&mut recorder, &end);
            read = Some(end.clone());
            gateway.shard.answer_read(action, attempt, end, copy);
        }
        BodyEvent::ReaderLeft => gateway.shard.note(Input::AgentLeft { action }),
        BodyEvent::Ended { end: how, .. } => {
            let end = read.take().unwrap_or_else(|| end(how, &mut marks));
            let copy = copied(&mut recorder, &end);
            gateway.shard.ended(action, attempt, end, copy, keep_copy);
        }
    })
}

fn copied(recorder: &mut Option<Recorder>, end: &BodyEnd) -> Option<Arc<AnswerCopy>> {
    recorder.take().filter(|_| *end == BodyEnd::Complete).and_then(Recorder::copy)
}

fn end(how: &answer::BodyEnd, marks: &mut Option<Marks>) -> BodyEnd {
    match how {
        answer::BodyEnd::Complete | answer::BodyEnd::UntilClose => {
            marks.take().map_or(BodyEnd::Complete, Marks::verdict)
        }
        answer::BodyEnd::Cut(what) => BodyEnd::Cut(what.clone()),
        answer::BodyEnd::Abandoned => BodyEnd::AgentLeft,
    }
}
