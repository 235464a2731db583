//! What was seen of each intent, each call and each scope: by its agent, at the provider, on the disk.

use std::collections::BTreeMap;

use forbear_core::effect::Effect;
use forbear_core::event::{Event, Fact, Outcome};
use forbear_core::ids::{ActionId, ScopeId};
use forbear_core::time::Wall;

use crate::plan::{Intent, SCOPES_MAX, TASKS_MAX};
use crate::world::run_of;

/// An intent, and how often it was asked for and done.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) intent: Intent,
    pub(crate) calls: u32,
    pub(crate) effects: u32,
    /// The agent made a call that Forbear could not know to be a repeat: effects are counted by call then.
    pub(crate) loose: bool,
    /// The agent wants nothing more.
    pub(crate) done: bool,
}

/// One call.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) intent: usize,
    pub(crate) deadline_ms: u64,
    /// The agent hung up, or its process or server was killed.
    pub(crate) gone: bool,
    pub(crate) gone_at_ms: Option<u64>,
    pub(crate) answers: u32,
    /// What Forbear told its agent of the effect.
    pub(crate) told: Option<Effect>,
    // At the provider.
    pub(crate) arrivals: u32,
    pub(crate) heads: u32,
    pub(crate) effects: u32,
    /// The last answer was cut.
    pub(crate) cut: bool,
    /// An attempt left whose fate is open.
    pub(crate) unknown: bool,
    /// The last attempt that arrived was not answered.
    pub(crate) open: bool,
    pub(crate) keys: Vec<String>,
    pub(crate) key_since_ms: Option<u64>,
    /// What the provider told this call alone.
    pub(crate) not_before_ms: u64,
    // On the disk.
    pub(crate) requested: bool,
    pub(crate) sent: u32,
    pub(crate) ended: Option<(Outcome, Effect)>,
    /// When its last send was decided.
    pub(crate) sent_at_ms: Option<u64>,
    /// The retry that is planned, in the journal's queue.
    pub(crate) retry_at: Option<Wall>,
}

#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Refusals that were read: when, and until when they close it.
    pub(crate) told: Vec<(u64, u64)>,
    /// The boundary that the disk knows.
    pub(crate) durable_until: Option<Wall>,
    /// Calls on the wire, as the provider sees them.
    pub(crate) on_wire: Vec<usize>,
}

pub(crate) struct Books {
    pub(crate) intents: Vec<Standing>,
    pub(crate) calls: Vec<Call>,
    pub(crate) scopes: [Scope; SCOPES_MAX],
    pub(crate) cancelled_at_ms: [Option<u64>; TASKS_MAX],
    /// By the disk; a cancel that is not on it dies with its process.
    pub(crate) cancels_kept: [bool; TASKS_MAX],
    names: BTreeMap<ActionId, usize>,
    scope_names: BTreeMap<ScopeId, usize>,
}

impl Standing {
    pub(crate) fn new(intent: Intent) -> Self {
        Self { intent, calls: 0, effects: 0, loose: false, done: false }
    }
}

impl Books {
    pub(crate) fn new(intents: Vec<Standing>) -> Self {
        Self {
            intents,
            calls: Vec::new(),
            scopes: Default::default(),
            cancelled_at_ms: Default::default(),
            cancels_kept: Default::default(),
            names: BTreeMap::new(),
            scope_names: BTreeMap::new(),
        }
    }

    pub(crate) fn intent_of(&self, call: usize) -> &Standing {
        &self.intents[self.calls[call].intent]
    }

    /// The agents name their runs `c` and the number of the call.
    pub(crate) fn names(&mut self, action: ActionId, run: &str) {
        if let Some(n) = run.strip_prefix('c').and_then(|n| n.parse().ok()) {
            self.names.insert(action, n);
        }
    }

    pub(crate) fn call_of(&self, action: ActionId) -> Option<usize> {
        self.names.get(&action).copied()
    }

    pub(crate) fn name(&self, action: ActionId) -> String {
        self.call_of(action).map_or_else(|| "somebody".into(), |n| format!("c{n}"))
    }

    pub(crate) fn ended(&self, action: ActionId) -> bool {
        let ended = self.call_of(action).and_then(|n| self.calls[n].ended);
        ended.is_some_and(|(outcome, _)| outcome.is_terminal())
    }

    pub(crate) fn durable(&mut self, event: &Event) {
        if let (Some(action), Some(run)) = (event.action, run_of(&event.fact)) {
            self.names(action, run);
        }
        if let Fact::ScopeUpdated(update) = &event.fact
            && let Some(scope) = self.scope_names.get(&update.scope)
        {
            self.scopes[*scope].durable_until = update.retry_not_before;
        }
        if let Fact::TaskCancelled { task, .. } = &event.fact
            && let Some(kept) = task.as_str().strip_prefix('t').and_then(|t| t.parse::<usize>().ok())
        {
            self.cancels_kept[kept] = true;
        }
        let Some(n) = event.action.and_then(|a| self.call_of(a)) else { return };
        let scope = self.intent_of(n).intent.scope;
        let call = &mut self.calls[n];
        match &event.fact {
            Fact::ActionRequested(asked) => {
                call.requested = true;
                self.scope_names.insert(asked.scope.clone(), scope);
            }
            Fact::ActionSent { attempt } => call.sent = attempt.0,
            Fact::ActionFinished(end) => {
                call.ended = Some((end.outcome, end.effect));
                if let Some(straight) = &end.straight {
                    self.scope_names.insert(straight.scope.clone(), scope);
                }
            }
            _ => {}
        }
    }
}
