//! The only place that reads clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use forbear_core::time::{Mono, Now, Wall};
use tokio::time::Instant;

/// The process's two clocks, read together.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock {
    #[must_use]
    pub fn now(&self) -> Now {
        // 500 years of nanoseconds fit.
        let mono = Mono(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        Now { mono, wall: Wall(i64::try_from(wall).unwrap_or(i64::MAX)) }
    }

    /// The runtime's instant of a monotonic one.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Instant {
        self.origin + std::time::Duration::from_nanos(at.0)
    }
}
