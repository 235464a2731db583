//! The limit windows that one answer told of, gathered from several fields: what limits, what is left, when more comes,
//! and in which words the reset was said. Where two fields speak of one window, the stricter counts.

use super::Window;
use super::server_time::ServerTime;
use super::values::Reading;

/// Windows of one answer that are kept.
pub(super) const WINDOWS_MAX: usize = 32;
/// Bytes of a window's name.
pub(super) const NAME_BYTES_MAX: usize = 64;
/// The window of fields that name none.
pub(super) const UNNAMED: &str = "default";

/// A window and its reset as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenWindow {
    pub(super) window: Window,
    /// How the reset was read.
    pub(super) reading: String,
    /// The reset's field as sent.
    pub(super) raw: String,
}

/// Windows in the order in which they were told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SeenWindows(pub(super) Vec<SeenWindow>);

impl SeenWindows {
    /// The window of that name, a new one where there is none; `None` when the bound is reached.
    pub(super) fn named(&mut self, name: &str) -> Option<&mut SeenWindow> {
        let name = cut(name);
        let at = match self.0.iter().position(|seen| seen.window.name == name) {
            Some(at) => at,
            None if self.0.len() >= WINDOWS_MAX => return None,
            None => {
                self.0.push(SeenWindow::new(name));
                self.0.len() - 1
            }
        };
        self.0.get_mut(at)
    }

    /// Adds a window even if its name is there already: one policy has a window for each partition.
    pub(super) fn push(&mut self, seen: SeenWindow) -> bool {
        let fits = self.0.len() < WINDOWS_MAX;
        if fits {
            self.0.push(seen);
        }
        fits
    }

    pub(super) fn any_spent(&self) -> bool {
        self.0.iter().any(|seen| seen.window.remaining == Some(0))
    }
}

impl SeenWindow {
    pub(super) fn new(name: &str) -> Self {
        let window =
            Window { name: cut(name).to_owned(), limit: None, remaining: None, reset_ms: None, window_ms: None };
        Self { window, reading: String::new(), raw: String::new() }
    }

    pub(super) fn limit(&mut self, limit: u64) {
        self.window.limit = Some(self.window.limit.map_or(limit, |known| known.min(limit)));
    }

    pub(super) fn remaining(&mut self, remaining: u64) {
        self.window.remaining = Some(self.window.remaining.map_or(remaining, |known| known.min(remaining)));
    }

    pub(super) fn reset(&mut self, reading: Reading, time: &ServerTime, raw: impl FnOnce() -> String) {
        let wait_ms = time.wait_ms(reading.when);
        if self.window.reset_ms.is_none_or(|known| wait_ms > known) {
            self.window.reset_ms = Some(wait_ms);
            self.reading = time.words(reading);
            self.raw = raw();
        }
    }
}

fn cut(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}
