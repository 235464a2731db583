//! Instants as values. Monotonic and wall time are different types, so that neither can stand in for the other.
//!
//! Nothing in the core reads a clock: a [`Now`] is passed in with every input.

use serde::{Deserialize, Serialize};

/// A point on the driver's monotonic clock, in nanoseconds since an origin of its choosing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub u64);

/// A point of wall time, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub i64);

/// The two clocks, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub mono: Mono,
    pub wall: Wall,
}

impl Mono {
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// Whole milliseconds from `earlier` to here, rounded up; zero when `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0).div_ceil(1_000_000)
    }
}

impl Wall {
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        let ms = if ms > i64::MAX as u64 { i64::MAX } else { ms.cast_signed() };
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from here until `later`; zero when `later` is past.
    #[must_use]
    pub const fn ms_until(self, later: Self) -> u64 {
        let d = later.0.saturating_sub(self.0);
        if d < 0 { 0 } else { d.cast_unsigned() }
    }
}

impl Now {
    /// The monotonic instant at which the wall clock will show `wall`, if it is not stepped meanwhile.
    #[must_use]
    pub const fn mono_at(self, wall: Wall) -> Mono {
        self.mono.plus_ms(self.wall.ms_until(wall))
    }

    /// The wall time that belongs to a monotonic instant at or after now.
    #[must_use]
    pub const fn wall_at(self, mono: Mono) -> Wall {
        self.wall.plus_ms(mono.ms_since(self.mono))
    }
}
