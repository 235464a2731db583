//! What is wrong with a configuration file, said so that a person can mend it: what happened, where, and what to do.
//!
//! Each kind has a stable code with a page in `docs/errors/`. Faults come as text that points at the line, and as JSON.

use std::fmt;
use std::sync::Arc;

use forbear_core::policy::FaultKind;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, Severity, SourceCode};
use serde::Serialize;

use super::tree::Place;

/// The stable codes of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Code {
    /// The file cannot be read.
    FB1001,
    /// The file is not YAML.
    FB1002,
    /// A key stands twice.
    FB1003,
    /// A key that there is not.
    FB1004,
    /// A value of another kind than the key's.
    FB1005,
    /// A key that must be there.
    FB1006,
    /// A number outside its bounds.
    FB1007,
    /// Two values that cannot both be meant.
    FB1008,
    /// A class or a provider that there is not.
    FB1009,
    /// A class without a rank, or with another's.
    FB1010,
    /// A resend of a write whose effect is unknown.
    FB1011,
    /// A route that cannot be read.
    FB1012,
    /// A write called idempotent that carries no key.
    FB1013,
    /// A base URL that cannot be used.
    FB1014,
    /// A provider over plain HTTP. A warning.
    FB1015,
    /// No header name or value.
    FB1016,
    /// No place to read a code from.
    FB1017,
    /// No name for a class or a provider.
    FB1018,
    /// More entries than the bound.
    FB1019,
    /// Nothing says where the data belongs.
    FB1020,
}

impl Code {
    pub const ALL: [Self; 20] = [
        Self::FB1001,
        Self::FB1002,
        Self::FB1003,
        Self::FB1004,
        Self::FB1005,
        Self::FB1006,
        Self::FB1007,
        Self::FB1008,
        Self::FB1009,
        Self::FB1010,
        Self::FB1011,
        Self::FB1012,
        Self::FB1013,
        Self::FB1014,
        Self::FB1015,
        Self::FB1016,
        Self::FB1017,
        Self::FB1018,
        Self::FB1019,
        Self::FB1020,
    ];

    pub(super) const fn of(kind: FaultKind) -> Self {
        match kind {
            FaultKind::OutOfBounds => Self::FB1007,
            FaultKind::Contradiction => Self::FB1008,
            FaultKind::UnknownClass => Self::FB1009,
            FaultKind::Rank => Self::FB1010,
            FaultKind::UnsafeResend => Self::FB1011,
            FaultKind::BadRoute => Self::FB1012,
            FaultKind::NoKey => Self::FB1013,
            FaultKind::BadUrl | FaultKind::CredentialInUrl => Self::FB1014,
            FaultKind::PlainHttp => Self::FB1015,
            FaultKind::BadHeader => Self::FB1016,
            FaultKind::BadCode => Self::FB1017,
            FaultKind::BadName => Self::FB1018,
            FaultKind::TooMany => Self::FB1019,
        }
    }

    const fn is_warning(self) -> bool {
        matches!(self, Self::FB1015)
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, Serialize)]
pub struct ConfigFault {
    pub code: Code,
    /// Whether the configuration can be used all the same.
    pub warning: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// From 1, as editors count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// `providers.shop.routes[0].class`
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    pub happened: String,
    pub hint: String,
    #[serde(skip)]
    snippet: Option<Snippet>,
}

#[derive(Debug, Clone)]
struct Snippet {
    source: Arc<NamedSource<String>>,
    offset: usize,
    length: usize,
}

impl ConfigFault {
    pub(super) fn new(code: Code, path: &[String], happened: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            warning: code.is_warning(),
            file: None,
            line: None,
            column: None,
            key: key(path),
            happened: happened.into(),
            hint: hint.into(),
            snippet: None,
        }
    }

    pub(super) fn in_file(mut self, file: &str) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Point at a place. Without a source the line is named but not shown.
    pub(super) fn at(mut self, place: Place, source: Option<&Arc<NamedSource<String>>>) -> Self {
        if place.line > 0 {
            self.line = Some(place.line);
            self.column = Some(place.column);
            self.snippet = source.map(|source| Snippet {
                source: Arc::clone(source),
                offset: place.offset.min(source.inner().len()),
                length: place.length.min(source.inner().len().saturating_sub(place.offset)),
            });
        }
        self
    }
}

/// `providers.shop.routes[0].class`
fn key(path: &[String]) -> String {
    let mut out = String::new();
    for step in path {
        if step.bytes().all(|b| b.is_ascii_digit()) && !step.is_empty() && !out.is_empty() {
            out.push_str(&format!("[{step}]"));
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(step);
        }
    }
    out
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.happened)
    }
}

impl std::error::Error for ConfigFault {}

impl Diagnostic for ConfigFault {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(format!("{:?}", self.code)))
    }

    fn severity(&self) -> Option<Severity> {
        Some(if self.warning { Severity::Warning } else { Severity::Error })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.hint))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.snippet.as_ref().map(|s| &*s.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let snippet = self.snippet.as_ref()?;
        let span = LabeledSpan::new(Some("here".into()), snippet.offset, snippet.length);
        Some(Box::new(std::iter::once(span)))
    }
}

/// Everything that is wrong with a configuration, in the order of the file.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct ConfigErrors {
    pub faults: Vec<ConfigFault>,
}

impl ConfigErrors {
    pub(super) fn new(mut faults: Vec<ConfigFault>) -> Self {
        faults.sort_by_key(|f| (f.line, f.column));
        Self { faults }
    }

    /// The faults with their lines of the file, as a terminal shows them.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(80).with_context_lines(1).with_links(false);
        let mut out = String::new();
        for fault in &self.faults {
            // A report without a place in the file would not name the file.
            // Writing into a string does not fail; a report that did would still have its plain line.
            if fault.snippet.is_none() && fault.file.is_some() {
                out.push_str(&line(fault));
                out.push('\n');
            } else if handler.render_report(&mut out, fault).is_err() {
                out.push_str(&line(fault));
            }
        }
        out
    }
}

fn line(fault: &ConfigFault) -> String {
    let place = match (&fault.file, fault.line, fault.column) {
        (Some(file), Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
        (Some(file), ..) => format!("{file}: "),
        _ => String::new(),
    };
    let severity = if fault.warning { "warning" } else { "error" };
    format!("{place}{severity} {:?}: {fault}; {}", fault.code, fault.hint)
}

/// One line a fault: `file:line:column: error FB1004: key: what happened; what to do`.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&line(fault))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
