//! How many files the process may have open: every agent's connection is one, and every connection to a provider.
//!
//! Systems give programs a low soft limit for the sake of old ones and a high hard one for who asks. The server asks; the
//! hard limit is the administrator's and stands.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Beside connections: the journal, its lock and its log, the runtime's own, standard streams.
const OTHER_FILES: u64 = 64;

/// Raises the soft limit to the hard one and says what it is now; nothing where there is none.
pub(crate) fn raise() -> rustix::io::Result<Option<u64>> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(maximum)
}

/// What so many agents' connections may need, each with one to a provider.
pub(crate) const fn needed(connections_max: u64) -> u64 {
    connections_max.saturating_mul(2).saturating_add(OTHER_FILES)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let lower = before.current.map(|n| n - 1);
        setrlimit(Resource::Nofile, Rlimit { current: lower, ..before }).unwrap();
        assert_eq!(super::raise().unwrap(), before.maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
