//! Before its first byte a write is asked about once more: since it was taken in, an equal one may have become unknown, or have
//! been done without anybody being told, or have lost its agent. Then it is treated as one that comes now.
//!
//! What may have been done already is left alone: its own key, or its route, settles that it may be sent again.

use crate::action::live::Live;
use crate::action::repeat::{JOINED_MAX, Repeat};
use crate::command::Commands;
use crate::coordinator::Coordinator;
use crate::effect::Effect;
use crate::event::{Joined, Outcome};
use crate::ids::{ActionId, AttemptNo};
use crate::time::Now;

impl Coordinator {
    /// Whether no equal write keeps this one from leaving. If one does, it ends here, or waits for that one's result.
    pub(crate) fn is_still_alone(
        &mut self,
        now: Now,
        action: ActionId,
        attempt: AttemptNo,
        out: &mut Commands,
    ) -> bool {
        let Some(live) = self.live.get(&action) else { return false };
        // Whatever could change the answer is a doubt.
        let is_known = live.asked_at == self.doubts || live.effect != Effect::NotApplied;
        if is_known || live.request.observe || !live.request.rank.writes() {
            return true;
        }
        let repeat = self.repeat_of(&live.request, now);
        let doubts = self.doubts;
        let Some(live) = self.live.get_mut(&action) else { return false };
        live.asked_at = doubts;
        match repeat {
            Repeat::No => return true,
            Repeat::SameKey { age_ms } => {
                live.repeats_key = true;
                live.key_age_ms = live.key_age_ms.max(age_ms);
                return true;
            }
            Repeat::Done(_) | Repeat::Open(_) | Repeat::Joins(..) | Repeat::OtherContent(_) => {}
        }
        self.take_back(now, action, attempt, repeat, out);
        false
    }

    fn take_back(&mut self, now: Now, action: ActionId, attempt: AttemptNo, repeat: Repeat, out: &mut Commands) {
        let Some(mut live) = self.live.remove(&action) else { return };
        let scope = live.request.scope.clone();
        self.record_unsent(now, &mut live, attempt, "taken back: an equal write went before it", out);
        self.release_only(&live);
        self.give_back(now, &mut live, out);
        match repeat {
            Repeat::No | Repeat::SameKey { .. } => {}
            Repeat::Done(done) => self.refuse_done(now, live, done, out),
            Repeat::Open(open) => self.refuse_open(now, live, open, out),
            Repeat::OtherContent(known) => self.refuse_other_content(now, live, known, out),
            Repeat::Joins(to, how) => self.join_late(now, live, to, how, out),
        }
        self.pump(now, &scope, out);
    }

    /// Its own record ends; the call waits on for the result of the other.
    fn join_late(&mut self, now: Now, mut live: Box<Live>, to: ActionId, how: Joined, out: &mut Commands) {
        let has_room = self.live.get(&to).is_some_and(|first| first.joined.len() < JOINED_MAX);
        // Who waits for this one waited for no other.
        if !has_room || !live.joined.is_empty() {
            return self.refuse_to_wait(now, live, to, out);
        }
        let why = format!("waits for the result of {to}, an equal write on its way");
        self.finish(now, &mut live, Outcome::Denied, Some(why), out);
        self.join(now, live, to, how, out);
    }
}
