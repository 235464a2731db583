//! The only place that reads clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use forbear_core::time::{Mono, Now, Wall};
use tokio::time::Instant;

/// The process's two clocks, read together.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    /// The wall time at the origin, where it goes with the runtime's time instead of the system's.
    wall_origin: Option<Wall>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { origin: Instant::now(), wall_origin: None }
    }
}

impl Clock {
    /// Both clocks go with the runtime's: where that is paused, so are they.
    #[must_use]
    pub fn of_runtime(wall: Wall) -> Self {
        Self { origin: Instant::now(), wall_origin: Some(wall) }
    }

    #[must_use]
    pub fn now(&self) -> Now {
        let since = self.origin.elapsed();
        // 500 years of nanoseconds fit.
        let mono = Mono(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        let wall = match self.wall_origin {
            Some(wall) => wall.plus_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            None => {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
                Wall(i64::try_from(wall).unwrap_or(i64::MAX))
            }
        };
        Now { mono, wall }
    }

    /// The runtime's instant of a monotonic one.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Instant {
        self.origin + std::time::Duration::from_nanos(at.0)
    }
}
