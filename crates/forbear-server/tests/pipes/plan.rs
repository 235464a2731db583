//! What one seed is like: the policy, what the agents want, how bad the wires, the disk and the people are.

use std::fmt::Write as _;

use forbear_core::policy::Rank;
use forbear_lab::sim::moods::Dice;

pub(crate) const SCOPES_MAX: usize = 3;
pub(crate) const TASKS_MAX: usize = 4;
/// Bodies above it are streamed once.
pub(crate) const REPLAY_BYTES_MAX: usize = 4_096;
/// All kept bodies together. More than the agents of one seed send at once; a leak would make the last call too much.
pub(crate) const HELD_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) attempts_max: u64,
    pub(crate) uncertain_attempts_max: u64,
    pub(crate) wait_s_max: u64,
    pub(crate) queue_s_max: u64,
    pub(crate) task_retries_max: u64,
    pub(crate) task_wait_s_max: u64,
    pub(crate) floor_ms: u64,
    pub(crate) release_gap_ms: u64,
    pub(crate) jitter_ms: u64,
    pub(crate) delayed_max: u64,
    pub(crate) concurrent_max: u64,
    pub(crate) retries_a_minute_max: u64,
    pub(crate) retention_s: u64,
    pub(crate) connect_timeout_ms: u64,
    pub(crate) head_timeout_s: u64,
    pub(crate) deadline_s_max: u64,
    pub(crate) journal_before: bool,
    pub(crate) retry_after_s_max: u64,
    pub(crate) span_ms: u64,
    pub(crate) leaves_permille: u64,
    /// Of dials, of arrivals and of answers: how many meet a fault of the wire.
    pub(crate) wire_permille: u64,
    pub(crate) flush_ms_max: u64,
    pub(crate) ack_ms_max: u64,
    pub(crate) store_fails_permille: u64,
    pub(crate) reopen_fails: u64,
    pub(crate) fills: bool,
    pub(crate) cancels: u64,
    pub(crate) drains: bool,
    pub(crate) crashes: u64,
    /// What opens circuits, as the policy says it.
    pub(crate) breakers: &'static str,
}

/// One logical effect that an agent wants.
#[derive(Debug, Clone)]
pub(crate) struct Intent {
    pub(crate) at_ms: u64,
    pub(crate) scope: usize,
    pub(crate) task: usize,
    pub(crate) rank: Rank,
    pub(crate) repeatable: bool,
    /// The agent's own key.
    pub(crate) key: Option<String>,
    pub(crate) reference: Option<String>,
    /// Equal contents meet.
    pub(crate) content: u64,
    /// Too large to be kept.
    pub(crate) streamed_once: bool,
    pub(crate) expects_continue: bool,
    /// The body comes in so many pieces, so far apart.
    pub(crate) pieces: u64,
    pub(crate) piece_gap_ms: u64,
    pub(crate) deadline_s: u64,
}

impl Plan {
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        // Hours of waiting, where a policy allows them.
        let patient = dice.permille(200);
        let rough = dice.permille(500);
        Self {
            attempts_max: dice.range(2, 5),
            uncertain_attempts_max: dice.pick(&[1, 1, 3]),
            wait_s_max: if patient { 10_000 } else { dice.pick(&[1, 5, 30, 120]) },
            queue_s_max: dice.pick(&[1, 10, 60]),
            task_retries_max: dice.pick(&[2, 4, 10, 100]),
            task_wait_s_max: if patient { 100_000 } else { dice.pick(&[10, 60, 600]) },
            floor_ms: dice.pick(&[1_000, 1_000, 100]),
            release_gap_ms: dice.pick(&[0, 200]),
            jitter_ms: dice.pick(&[0, 250, 2_000]),
            delayed_max: dice.pick(&[2, 5, 25]),
            concurrent_max: dice.pick(&[1, 2, 8]),
            retries_a_minute_max: dice.pick(&[3, 10, 100]),
            retention_s: dice.pick(&[30, 120, 600, 86_400]),
            connect_timeout_ms: dice.pick(&[10_000, 10_000, 40_000]),
            head_timeout_s: dice.pick(&[5, 30, 600]),
            deadline_s_max: if patient { 14_400 } else { 900 },
            journal_before: dice.permille(100),
            retry_after_s_max: if patient { dice.pick(&[60, 3_600]) } else { dice.pick(&[2, 10, 40, 150]) },
            span_ms: dice.pick(&[200, 5_000, 60_000]),
            leaves_permille: dice.pick(&[0, 50, 300]),
            wire_permille: dice.pick(&[0, 30, 150]),
            flush_ms_max: dice.pick(&[1, 1, 20, 4_000]),
            ack_ms_max: dice.pick(&[0, 0, 5, 500]),
            store_fails_permille: if rough { dice.pick(&[0, 10, 60]) } else { 0 },
            reopen_fails: dice.pick(&[0, 0, 1, 5]),
            fills: dice.permille(50),
            cancels: dice.pick(&[0, 0, 0, 1, 2]),
            drains: dice.permille(60),
            crashes: if rough { dice.pick(&[0, 0, 1, 2]) } else { 0 },
            breakers: "",
        }
    }

    /// Some runs stop soon what fails again and again. `dice` are no others, so that the rest of a run stays as it was.
    pub(crate) fn break_circuits(&mut self, dice: &mut Dice) {
        let soon = "equal_failures: 1, changed_failures: 2, unauthorized: 2, scope_failures: 2";
        self.breakers = dice.pick(&["", "", soon]);
    }

    pub(crate) fn intents(&self, dice: &mut Dice) -> Vec<Intent> {
        let (n, scopes, tasks) = (dice.range(4, 16), dice.range(1, SCOPES_MAX as u64), dice.range(1, TASKS_MAX as u64));
        (0..n).map(|id| self.intent(dice, id, scopes, tasks)).collect()
    }

    fn intent(&self, dice: &mut Dice, id: u64, scopes: u64, tasks: u64) -> Intent {
        let ranks = [Rank::Read, Rank::Inference, Rank::IdempotentWrite, Rank::IdempotentWrite, Rank::UncertainWrite];
        let rank = dice.pick(&ranks);
        let index = |n: u64| usize::try_from(n).expect("there are few");
        let streamed_once = rank != Rank::Read && dice.permille(50);
        let pieces = if rank == Rank::Read { 0 } else { dice.pick(&[1, 1, 1, 3]) };
        Intent {
            at_ms: dice.range(0, self.span_ms),
            scope: index(dice.range(0, scopes - 1)),
            task: index(dice.range(0, tasks - 1)),
            rank,
            repeatable: rank == Rank::IdempotentWrite && dice.permille(60),
            key: (rank.writes() && dice.permille(500)).then(|| format!("key {id}")),
            reference: (rank.writes() && dice.permille(100)).then(|| format!("ref{id}")),
            content: dice.pick(&[id, 250, 251]),
            streamed_once,
            expects_continue: pieces > 0 && dice.permille(60),
            pieces,
            piece_gap_ms: dice.pick(&[0, 20, 700]),
            deadline_s: dice.pick(&[3, 30, 300, 14_400]).min(self.deadline_s_max),
        }
    }

    /// The configuration of this seed.
    pub(crate) fn config(&self) -> String {
        let mut text = String::new();
        let class = |text: &mut String, name: &str, attempts: u64, statuses: &str| {
            let (wait, queue, deadline) = (self.wait_s_max, self.queue_s_max, self.deadline_s_max);
            let again = u8::from(!name.ends_with("write"));
            let _ = writeln!(
                text,
                "  {name}: {{max_attempts: {attempts}, max_wait_seconds: {wait}, retry_statuses: [{statuses}], \
                 unknown_resends: {again}, unsent_resends: 2, max_queue_seconds: {queue}, deadline_seconds: {deadline}}}"
            );
        };
        let all = "408, 429, 500, 502, 503, 504";
        text.push_str("request_classes:\n");
        for name in ["read", "inference", "idempotent_write"] {
            class(&mut text, name, self.attempts_max, all);
        }
        let uncertain = self.uncertain_attempts_max;
        class(&mut text, "uncertain_write", uncertain, if uncertain > 1 { all } else { "" });
        let _ = write!(
            text,
            "\
breakers: {{{}}}
shared_scope: {{max_delayed_requests: {}, max_concurrent_requests: {}, max_retries_per_minute: {}}}
task: {{max_retries: {}, max_wait_seconds: {}}}
backoff: {{base_ms: 1000, cap_ms: 60000, floor_ms: {}}}
pacing: {{release_gap_ms: {}, jitter_ms: {}}}
journal_reads: {}
drain_seconds: 30
body_replay_bytes_max: {REPLAY_BYTES_MAX}
replay_bytes_total_max: {HELD_BYTES_MAX}
upstream: {{connect_timeout_ms: {}, head_timeout_seconds: {}}}
providers:
  p:
    base_url: http://127.0.0.1:9
    idempotency: {{header: Idempotency-Key, retention_seconds: {}, methods: [POST]}}
    stream: {{ends: ['data: [DONE]'], errors: ['event: error']}}
    codes:
      - {{at: 'body:code', is: in_progress, means: in_progress}}
      - {{at: 'body:code', is: before_work, means: unavailable, before_work: true}}
    routes:
      - {{match: 'POST /chat', class: inference}}
      - {{match: 'POST /idem', class: idempotent_write}}
      - {{match: 'PUT /rep', class: idempotent_write, repeatable: true}}
      - {{match: 'POST /unc', class: uncertain_write}}
",
            self.breakers,
            self.delayed_max,
            self.concurrent_max,
            self.retries_a_minute_max,
            self.task_retries_max,
            self.task_wait_s_max,
            self.floor_ms,
            self.release_gap_ms,
            self.jitter_ms,
            if self.journal_before { "before" } else { "behind" },
            self.connect_timeout_ms,
            self.head_timeout_s,
            self.retention_s,
        );
        text
    }
}

impl Intent {
    pub(crate) fn request_line(&self) -> String {
        let (method, path) = match self.rank {
            Rank::Read => return format!("GET /p/read?c={} HTTP/1.1", self.content),
            Rank::Inference => ("POST", "chat"),
            Rank::IdempotentWrite if self.repeatable => ("PUT", "rep"),
            Rank::IdempotentWrite => ("POST", "idem"),
            Rank::UncertainWrite => ("POST", "unc"),
        };
        format!("{method} /p/{path} HTTP/1.1")
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let pad = if self.streamed_once { REPLAY_BYTES_MAX * 2 } else { 40 };
        format!("{{\"content\":{},\"pad\":\"{}\"}}", self.content, "x".repeat(pad)).into_bytes()
    }

    /// Whether it has no name, and nothing else tells it from another write.
    pub(crate) fn repeats_nameless(&self, other: &Self) -> bool {
        let is_nameless = self.rank.writes() && self.key.is_none() && self.reference.is_none();
        let said = |i: &Self| (i.scope, i.request_line(), i.body());
        is_nameless && said(self) == said(other)
    }

    /// Whether the provider deduplicates what carries a key.
    pub(crate) fn deduplicated(&self) -> bool {
        matches!(self.rank, Rank::IdempotentWrite | Rank::UncertainWrite) && !self.repeatable
    }
}
