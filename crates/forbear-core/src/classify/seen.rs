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

/// A window, and where its reset was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenWindow<'a> {
    pub(super) window: Window,
    pub(super) reset: Option<Reset<'a>>,
}

/// How a reset was read, and in which field. The words for it are made only where it decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reset<'a> {
    pub(super) reading: Reading,
    pub(super) field: &'a str,
}

/// Windows in the order in which they were told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SeenWindows<'a>(pub(super) Vec<SeenWindow<'a>>);

impl<'a> SeenWindows<'a> {
    /// The window of that name, a new one where there is none; `None` when the bound is reached.
    pub(super) fn named(&mut self, name: &str) -> Option<&mut SeenWindow<'a>> {
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
    pub(super) fn push(&mut self, seen: SeenWindow<'a>) -> bool {
        let fits = self.0.len() < WINDOWS_MAX;
        if fits {
            self.0.push(seen);
        }
        fits
    }
}

impl<'a> SeenWindow<'a> {
    pub(super) fn new(name: &str) -> Self {
        let window =
            Window { name: cut(name).to_owned(), limit: None, remaining: None, reset_ms: None, window_ms: None };
        Self { window, reset: None }
    }

    pub(super) fn limit(&mut self, limit: u64) {
        self.window.limit = Some(self.window.limit.map_or(limit, |known| known.min(limit)));
    }

    pub(super) fn remaining(&mut self, remaining: u64) {
        self.window.remaining = Some(self.window.remaining.map_or(remaining, |known| known.min(remaining)));
    }

    pub(super) fn reset(&mut self, reading: Reading, time: &ServerTime, field: &'a str) {
        let wait_ms = time.wait_ms(reading.when);
        if self.window.reset_ms.is_none_or(|known| wait_ms > known) {
            self.window.reset_ms = Some(wait_ms);
            self.reset = Some(Reset { reading, field });
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
