//! The read side: its own connection, which can change nothing, and short transactions, so that no reader holds up the
//! writer's checkpoints. It works beside a running server and without one.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forbear_audit::chain::{Head, LogId, Verifier};
use forbear_audit::seal::Sealed;
use forbear_core::event::Event;
use forbear_core::ids::{ActionId, Seq};
use forbear_core::time::Wall;
use rusqlite::{Connection, OptionalExtension};

use crate::error::StoreError;
use crate::projection::{self, ActionRow};
use crate::recover::{self, row_at};
use crate::routes_seen::RoutesSeen;
use crate::row::{COLUMNS, Row};
use crate::schema;
use crate::tally::{Since, Tally};

/// Actions looked at in one transaction.
const SCAN_STEP_ROWS: i64 = 2_000;
/// Actions looked at in one call: a filter that matches little goes on from [`ActionPage::next`].
const SCAN_ROWS_MAX: usize = 200_000;
/// Actions or events of one answer.
const PAGE_MAX: usize = 10_000;
/// Events of a walk that are read at once.
const WALK_STEP_EVENTS: usize = 2_000;
/// Rows verified in one transaction.
const VERIFY_STEP_ROWS: i64 = 64;

/// Which actions are wanted; what is `None` or false does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionFilter {
    pub task: Option<String>,
    pub run: Option<String>,
    pub provider: Option<String>,
    pub scope: Option<String>,
    pub route: Option<String>,
    pub class: Option<String>,
    pub outcome: Option<String>,
    /// Only those that stand.
    pub open: bool,
}

/// Newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionPage {
    pub actions: Vec<ActionRow>,
    /// Where to go on from (`before`); none at the end.
    pub next: Option<ActionId>,
}

/// One action and its events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionStory {
    pub action: ActionRow,
    pub events: Vec<Event>,
    /// Earlier events are no longer kept, or there are more than one answer holds.
    pub cut: bool,
}

/// What a whole verification found in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// The first event that is kept.
    pub first_seq: Seq,
    /// The end of the chain: note it elsewhere, and a cut tail will be seen.
    pub head: Head,
}

/// Reads a store, whoever writes it.
pub struct Reader {
    conn: Mutex<Connection>,
}

impl Reader {
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Ok(Self { conn: Mutex::new(schema::open_for_reading(dir)?) })
    }

    pub fn log_id(&self) -> Result<LogId, StoreError> {
        Ok(recover::base(&self.lock())?.head.log)
    }

    /// The last durable event, and the first that is kept.
    pub fn range(&self) -> Result<(Seq, Seq), StoreError> {
        let conn = self.lock();
        let base = recover::base(&conn)?.head.seq;
        let last: Option<i64> = conn.query_row("SELECT max(last_seq) FROM journal", [], |r| r.get(0))?;
        Ok((Seq(base.saturating_add(1)), Seq(last.map_or(base, i64::cast_unsigned))))
    }

    /// Actions, newest first, that began before the one named.
    pub fn actions(
        &self,
        filter: &ActionFilter,
        limit: usize,
        before: Option<ActionId>,
    ) -> Result<ActionPage, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut actions, mut before, mut seen) = (Vec::new(), before, 0usize);
        while seen < SCAN_ROWS_MAX {
            let step = self.step(filter.open, before)?;
            let last_step = step.len() < usize::try_from(SCAN_STEP_ROWS).unwrap_or(usize::MAX);
            seen += step.len();
            for row in step {
                before = Some(row.id);
                if filter.wants(&row) {
                    actions.push(row);
                    if actions.len() == limit {
                        return Ok(ActionPage { actions, next: before });
                    }
                }
            }
            if last_step {
                return Ok(ActionPage { actions, next: None });
            }
        }
        Ok(ActionPage { actions, next: before })
    }

    fn step(&self, open: bool, before: Option<ActionId>) -> Result<Vec<ActionRow>, StoreError> {
        let conn = self.lock();
        let open = if open { "a.finished_at IS NULL AND" } else { "" };
        let sql = format!("{} WHERE {open} a.id < ?1 ORDER BY a.id DESC LIMIT {SCAN_STEP_ROWS}", projection::SELECT);
        let mut statement = conn.prepare_cached(&sql)?;
        let before = before.map_or([0xff; 16], |id| id.0.to_be_bytes());
        let rows = statement.query_map([before], projection::read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// One action with its events.
    pub fn action(&self, id: ActionId) -> Result<Option<ActionStory>, StoreError> {
        let conn = self.lock();
        let tx = conn.unchecked_transaction()?;
        let row = tx
            .prepare_cached(&format!("{} WHERE a.id = ?1", projection::SELECT))?
            .query_row([id.0.to_be_bytes()], projection::read)
            .optional()?;
        let Some(action) = row else { return Ok(None) };
        let (mut events, mut cut) = (Vec::new(), false);
        let mut next = Some(action.last_seq.0);
        // The events of the row looked at last: an action's events often lie in one.
        let mut row: Vec<Event> = Vec::new();
        while let Some(seq) = next {
            if !holds(&row, seq) {
                row = row_at(&tx, seq)?.map(|r| r.events()).transpose()?.unwrap_or_default();
            }
            let event = row.first().and_then(|first| row.get(usize::try_from(seq.checked_sub(first.seq.0)?).ok()?));
            let Some(event) = event.filter(|e| e.action == Some(id)) else {
                cut = true;
                break;
            };
            if events.len() == PAGE_MAX {
                cut = true;
                break;
            }
            next = event.prev.map(|p| p.0).filter(|p| *p < seq);
            events.push(event.clone());
        }
        events.reverse();
        Ok(Some(ActionStory { action, events, cut }))
    }

    /// Events in order, from `from_seq` or the first that is kept.
    pub fn events(&self, from_seq: Seq, limit: usize) -> Result<Vec<Event>, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let conn = self.lock();
        let (mut events, mut next) = (Vec::new(), from_seq.0);
        while events.len() < limit {
            let Some(row) = row_at(&conn, next)? else { break };
            let wanted = row.events()?.into_iter().filter(|e| e.seq.0 >= next);
            events.extend(wanted.take(limit - events.len()));
            next = row.last_seq.saturating_add(1);
        }
        Ok(events)
    }

    /// Everything since then, summed up.
    pub fn tally(&self, since: Since) -> Result<Tally, StoreError> {
        let mut tally = Tally::default();
        self.walk(since, |event| tally.note(event))?;
        Ok(tally)
    }

    /// The routes that were called since then.
    pub fn routes(&self, since: Since) -> Result<RoutesSeen, StoreError> {
        let mut seen = RoutesSeen::default();
        self.walk(since, |event| seen.note(event))?;
        Ok(seen)
    }

    /// Every event since then, in order, a few rows a transaction.
    fn walk(&self, since: Since, mut note: impl FnMut(&Event)) -> Result<(), StoreError> {
        let (mut next, last) = self.range()?;
        let from = match since {
            Since::At(at) => at,
            Since::Last(ms) => {
                let newest = row_at(&self.lock(), last.0)?.map(|row| row.events()).transpose()?.unwrap_or_default();
                let ms = i64::try_from(ms).unwrap_or(i64::MAX);
                newest.last().map_or(Wall(0), |event| Wall(event.at.0.saturating_sub(ms)))
            }
        };
        next = self.first_of_day(from)?.unwrap_or(next);
        loop {
            let events = self.events(next, WALK_STEP_EVENTS)?;
            let Some(end) = events.last() else { return Ok(()) };
            next = Seq(end.seq.0.saturating_add(1));
            events.iter().filter(|event| event.at >= from).for_each(&mut note);
        }
    }

    /// The first event of the day in which an instant lies, or of the next one that has any; none before the first kept.
    fn first_of_day(&self, at: Wall) -> Result<Option<Seq>, StoreError> {
        let conn = self.lock();
        let sql = "SELECT first_seq FROM journal WHERE day >= ?1 ORDER BY first_seq LIMIT 1";
        let first =
            conn.prepare_cached(sql)?.query_row([crate::row::utc_day(at)], |r| r.get::<_, i64>(0)).optional()?;
        Ok(first.map(|seq| Seq(seq.cast_unsigned())))
    }

    /// The sealed content of an action, where it is still kept.
    pub fn content(&self, action: ActionId) -> Result<Option<Sealed>, StoreError> {
        let conn = self.lock();
        let sealed = conn
            .prepare_cached("SELECT sealed FROM contents WHERE action = ?1")?
            .query_row([action.0.to_be_bytes()], |r| r.get(0))
            .optional()?;
        Ok(sealed.map(Sealed::from_bytes))
    }

    /// Checks the chain of everything that is kept. `progress` is told the last event checked, after each step.
    pub fn verify(&self, mut progress: impl FnMut(Seq)) -> Result<Verified, StoreError> {
        let mut base = recover::base(&self.lock())?;
        let mut verifier = Verifier::new(base.head);
        loop {
            let conn = self.lock();
            let tx = conn.unchecked_transaction()?;
            // Retention may have forgotten the beginning meanwhile.
            let now = recover::base(&tx)?;
            if now.head.seq > verifier.head().seq {
                verifier = Verifier::new(now.head);
            }
            base = now;
            let after = verifier.head().seq.cast_signed();
            let mut statement = tx.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM journal WHERE last_seq > ?1 AND first_seq > ?1 ORDER BY first_seq LIMIT {VERIFY_STEP_ROWS}"
            ))?;
            let rows = statement.query_map([after], Row::read)?.collect::<Result<Vec<_>, _>>()?;
            if rows.is_empty() {
                return Ok(Verified { first_seq: Seq(base.head.seq.saturating_add(1)), head: verifier.head() });
            }
            rows.iter().try_for_each(|row| row.verify(&mut verifier))?;
            progress(Seq(verifier.head().seq));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.conn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holds(events: &[Event], seq: u64) -> bool {
    let (first, last) = (events.first().map_or(u64::MAX, |e| e.seq.0), events.last().map_or(0, |e| e.seq.0));
    (first..=last).contains(&seq)
}

impl ActionFilter {
    fn wants(&self, row: &ActionRow) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|w| w == has);
        is(&self.task, &row.task)
            && is(&self.run, &row.run)
            && is(&self.provider, &row.provider)
            && is(&self.scope, &row.scope)
            && is(&self.route, &row.route)
            && is(&self.class, &row.class)
            && is(&self.outcome, row.outcome.as_deref().unwrap_or_default())
            && (!self.open || row.finished_at.is_none())
    }
}
