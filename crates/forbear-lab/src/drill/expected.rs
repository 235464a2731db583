//! What a policy lets a read do, so that the drill expects no more and no less of it.

use forbear_core::policy::{ClassRule, Policy, Rank};

pub(super) struct Reads<'a> {
    rule: Option<&'a ClassRule>,
    jitter_ms: u64,
}

impl<'a> Reads<'a> {
    pub(super) fn under(policy: &'a Policy) -> Self {
        Self { rule: policy.request_classes.get(Rank::Read.class()), jitter_ms: policy.pacing.jitter_ms }
    }

    /// Whether this status is Forbear's to handle, and not the provider's answer to pass on.
    pub(super) fn handles(&self, status: u16) -> bool {
        self.rule.is_some_and(|r| r.retry_statuses.contains(&status))
    }

    /// Retries of one call after this status, at most.
    pub(super) fn retries(&self, status: u16) -> usize {
        self.rule.filter(|_| self.handles(status)).map_or(0, |r| r.max_attempts.saturating_sub(1) as usize)
    }

    /// Whether a refused call waits so long for its retry.
    pub(super) fn waits_for_a_retry(&self, status: u16, ms: u64) -> bool {
        self.retries(status) > 0
            && self.rule.is_some_and(|r| self.has_room(r.max_wait_seconds.min(r.deadline_seconds), ms))
    }

    /// Whether a call that was not sent yet waits so long for its turn.
    pub(super) fn waits_in_line(&self, ms: u64) -> bool {
        self.rule.is_some_and(|r| self.has_room(r.max_queue_seconds.min(r.deadline_seconds), ms))
    }

    const fn has_room(&self, seconds: u64, ms: u64) -> bool {
        seconds.saturating_mul(1_000) > ms.saturating_add(self.jitter_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_says_what_to_expect() {
        let mut policy = Policy::default();
        let reads = Reads::under(&policy);
        assert!(reads.handles(429) && !reads.handles(404));
        assert_eq!((reads.retries(503), reads.retries(404)), (3, 0));
        assert!(reads.waits_for_a_retry(429, 10_000) && reads.waits_in_line(10_000));
        assert!(!reads.waits_for_a_retry(429, 90_000) && !reads.waits_in_line(60_000));
        policy.request_classes.get_mut("read").unwrap().max_attempts = 1;
        let reads = Reads::under(&policy);
        assert!(reads.handles(429) && !reads.waits_for_a_retry(429, 0) && reads.waits_in_line(10_000));
    }
}
