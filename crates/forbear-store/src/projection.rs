//! The table `actions`: one row an action, for whoever asks what happened. A projection: everything in it comes from
//! the journal and can be made again from it.
//!
//! It is kept small, because a straight read is one event and one row: words that repeat are numbers into `names`, the
//! start is in the id, and what is usual (its own task, the run named as the task) is null.

use std::collections::BTreeMap;

use forbear_core::effect::{Effect, Evidence};
use forbear_core::event::{Event, Fact};
use forbear_core::ids::{ActionId, Seq};
use forbear_core::time::Wall;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::error::StoreError;
use crate::row::Row;
use crate::schema;

/// One action, as the projection has it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ActionRow {
    pub id: ActionId,
    pub started_at: Wall,
    /// None while it stands.
    pub finished_at: Option<Wall>,
    pub provider: String,
    pub scope: String,
    pub route: String,
    pub class: String,
    pub task: String,
    pub run: String,
    pub outcome: Option<String>,
    pub effect: Option<String>,
    pub status: Option<u16>,
    pub attempts: u32,
    pub waited_ms: u64,
    pub first_seq: Seq,
    pub last_seq: Seq,
}

/// What a group's events change of one action.
#[derive(Default)]
struct Change<'a> {
    first_seq: u64,
    last_seq: u64,
    asked: Option<Asked<'a>>,
    ended: Option<Ended>,
    effect: Option<Effect>,
    status: Option<u16>,
    /// Attempts that left, as far as this group tells; the action's end tells them all.
    attempts: i64,
}

struct Asked<'a> {
    scope: &'a str,
    route: &'a str,
    class: &'a str,
    task: &'a str,
    run: &'a str,
}

struct Ended {
    finished_at: Option<i64>,
    outcome: &'static str,
    waited_ms: u64,
}

const UPSERT: &str = "INSERT INTO actions
  (id, first_seq, last_seq, finished_at, scope, route, class, task, run, outcome, effect, status, attempts, waited_ms)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
  ON CONFLICT (id) DO UPDATE SET
    last_seq = excluded.last_seq,
    finished_at = coalesce(excluded.finished_at, finished_at),
    scope = coalesce(scope, excluded.scope), route = coalesce(route, excluded.route),
    class = coalesce(class, excluded.class), task = coalesce(task, excluded.task), run = coalesce(run, excluded.run),
    outcome = coalesce(excluded.outcome, outcome), effect = coalesce(excluded.effect, effect),
    status = coalesce(excluded.status, status), 
    attempts = CASE WHEN excluded.outcome IS NULL THEN max(attempts + excluded.attempts, 0) ELSE excluded.attempts END,
    waited_ms = max(waited_ms, excluded.waited_ms)";

/// The columns that [`read`] expects, in order.
pub(crate) const SELECT: &str = "SELECT a.id, a.first_seq, a.last_seq, a.finished_at, s.text, r.text, c.text, a.task,
  a.run, o.text, e.text, a.status, a.attempts, a.waited_ms FROM actions a
  LEFT JOIN names s ON s.id = a.scope LEFT JOIN names r ON r.id = a.route LEFT JOIN names c ON c.id = a.class
  LEFT JOIN names o ON o.id = a.outcome LEFT JOIN names e ON e.id = a.effect";

/// How many names are remembered between groups; beyond, all are asked for again.
const NAMES_REMEMBERED: usize = 4096;

/// Numbers of names that were used before.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, i64>);

impl Names {
    fn number(&mut self, conn: &Connection, text: &str) -> Result<i64, StoreError> {
        if let Some(id) = self.0.get(text) {
            return Ok(*id);
        }
        let known =
            conn.prepare_cached("SELECT id FROM names WHERE text = ?1")?.query_row([text], |r| r.get(0)).optional()?;
        let id = match known {
            Some(id) => id,
            None => conn
                .prepare_cached("INSERT INTO names (text) VALUES (?1) RETURNING id")?
                .query_row([text], |r| r.get(0))?,
        };
        if self.0.len() >= NAMES_REMEMBERED {
            self.0.clear();
        }
        self.0.insert(text.to_owned(), id);
        Ok(id)
    }
}

/// Brings the table up to a run of events, inside the caller's transaction.
pub(crate) fn apply<'a>(
    conn: &Connection,
    names: &mut Names,
    events: impl IntoIterator<Item = &'a Event>,
) -> Result<(), StoreError> {
    let mut changes: BTreeMap<ActionId, Change<'_>> = BTreeMap::new();
    for event in events {
        if let Some(action) = event.action {
            let change =
                changes.entry(action).or_insert_with(|| Change { first_seq: event.seq.0, ..Change::default() });
            change.note(event);
        }
    }
    let mut upsert = conn.prepare_cached(UPSERT)?;
    changes.iter().try_for_each(|(id, change)| change.write(conn, &mut upsert, names, *id))
}

impl<'a> Change<'a> {
    fn note(&mut self, event: &'a Event) {
        self.last_seq = event.seq.0;
        match &event.fact {
            Fact::ActionRequested(r) => {
                let (scope, route, class) = (r.scope.as_str(), r.route.as_str(), r.class.as_str());
                self.asked = Some(Asked { scope, route, class, task: r.task.as_str(), run: r.run.as_str() });
            }
            Fact::ActionSent { .. } => self.attempts += 1,
            Fact::ActionResult(r) => {
                self.effect = Some(r.effect);
                self.status = r.status.or(self.status);
                self.attempts -= i64::from(matches!(r.evidence, Evidence::NotSent | Evidence::Refused));
            }
            Fact::ActionFinished(f) => {
                self.effect = Some(f.effect);
                self.status = f.status.or(self.status);
                self.attempts = f.attempts.into();
                let finished_at = f.outcome.is_terminal().then_some(event.at.0);
                self.ended = Some(Ended { finished_at, outcome: f.outcome.as_str(), waited_ms: f.waited_ms });
                if let Some(s) = &f.straight {
                    let (scope, route, class) = (s.scope.as_str(), s.route.as_str(), s.class.as_str());
                    self.asked = Some(Asked { scope, route, class, task: s.task.as_str(), run: s.run.as_str() });
                }
            }
            _ => {}
        }
    }

    fn write(
        &self,
        conn: &Connection,
        upsert: &mut CachedStatement<'_>,
        names: &mut Names,
        id: ActionId,
    ) -> Result<(), StoreError> {
        let mut number = |text: Option<&str>| text.map(|t| names.number(conn, t)).transpose();
        let asked = self.asked.as_ref();
        let ended = self.ended.as_ref();
        let scope = number(asked.map(|a| a.scope))?;
        let route = number(asked.map(|a| a.route))?;
        let class = number(asked.map(|a| a.class))?;
        let outcome = number(ended.map(|e| e.outcome))?;
        let effect = number(self.effect.map(effect_name))?;
        let own_name = id.text();
        upsert.execute(params![
            id.0.to_be_bytes(),
            self.first_seq.cast_signed(),
            self.last_seq.cast_signed(),
            ended.and_then(|e| e.finished_at),
            scope,
            route,
            class,
            asked.map(|a| a.task).filter(|task| *task != own_name.as_str()),
            asked.filter(|a| a.run != a.task).map(|a| a.run),
            outcome,
            effect,
            self.status,
            self.attempts,
            ended.map_or(0, |e| e.waited_ms.min(i64::MAX as u64).cast_signed()),
        ])?;
        Ok(())
    }
}

const fn effect_name(effect: Effect) -> &'static str {
    match effect {
        Effect::Applied => "applied",
        Effect::NotApplied => "not_applied",
        Effect::Unknown => "unknown",
    }
}

pub(crate) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<ActionRow> {
    let text = |i| Ok::<_, rusqlite::Error>(row.get::<_, Option<String>>(i)?.unwrap_or_default());
    let id = ActionId(u128::from_be_bytes(row.get(0)?));
    let scope = text(4)?;
    let task = row.get::<_, Option<String>>(7)?.unwrap_or_else(|| id.to_string());
    Ok(ActionRow {
        id,
        started_at: started_at(id),
        finished_at: row.get::<_, Option<i64>>(3)?.map(Wall),
        provider: scope.split('/').next().unwrap_or_default().to_owned(),
        route: text(5)?,
        class: text(6)?,
        run: row.get::<_, Option<String>>(8)?.unwrap_or_else(|| task.clone()),
        task,
        outcome: row.get(9)?,
        effect: row.get(10)?,
        status: row.get(11)?,
        attempts: row.get(12)?,
        waited_ms: row.get::<_, i64>(13)?.cast_unsigned(),
        first_seq: Seq(row.get::<_, i64>(1)?.cast_unsigned()),
        last_seq: Seq(row.get::<_, i64>(2)?.cast_unsigned()),
        scope,
    })
}

/// The first 48 bits of an id are its time.
fn started_at(id: ActionId) -> Wall {
    Wall(i64::try_from(id.0 >> 80).unwrap_or(i64::MAX))
}

/// Makes the table again from the journal, in one transaction. Actions whose beginning is no longer kept stay as they
/// are. Gives the number of events read.
pub(crate) fn rebuild(conn: &Connection, names: &mut Names, base_seq: u64) -> Result<u64, StoreError> {
    let tx = schema::begin(conn)?;
    tx.execute("DELETE FROM actions WHERE first_seq > ?1", [base_seq.cast_signed()])?;
    // Also the words that nothing uses any more.
    *names = Names::default();
    tx.execute_batch(
        "DELETE FROM names WHERE id NOT IN (
           SELECT scope FROM actions WHERE scope NOT NULL UNION SELECT route FROM actions WHERE route NOT NULL
           UNION SELECT class FROM actions WHERE class NOT NULL UNION SELECT outcome FROM actions WHERE outcome NOT NULL
           UNION SELECT effect FROM actions WHERE effect NOT NULL)",
    )?;
    let mut events_read = 0;
    {
        let mut statement = tx.prepare(&format!("SELECT {} FROM journal ORDER BY first_seq", crate::row::COLUMNS))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let events = Row::read(row)?.events()?;
            apply(&tx, names, &events)?;
            events_read += events.len() as u64;
        }
    }
    tx.commit()?;
    Ok(events_read)
}
