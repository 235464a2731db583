//! One route pattern: `POST /v1/charges/{id}`. It is read strictly, since a pattern that means something other than its
//! author thought gives a write the wrong class.

/// One pattern's length.
pub(super) const PATTERN_BYTES_MAX: usize = 256;
/// Segments of one pattern; also how deep the trie goes.
pub(super) const PATTERN_SEGMENTS_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MethodPattern {
    Any,
    One(Box<str>),
}

impl MethodPattern {
    /// What answers GET answers HEAD, and does the same work for it (RFC 9110 section 9.3.2).
    pub(super) fn takes(&self, method: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(own) => &**own == method || (&**own == "GET" && method == "HEAD"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment<'p> {
    Literal(&'p str),
    One,
    /// `{name}:verb`, by the colon and what follows it.
    Verb(&'p str),
    Rest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern<'p> {
    pub(super) method: MethodPattern,
    pub(super) path: &'p str,
    pub(super) segments: Vec<Segment<'p>>,
}

/// Why a pattern cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    #[error("it needs a method, a space and a path")]
    NoMethod,
    #[error("the method is upper-case letters, or `*` for any")]
    BadMethod,
    #[error("the path begins with `/`")]
    NoSlash,
    #[error("a segment may not be empty; a call with a trailing slash matches the pattern without one")]
    EmptySegment,
    #[error(
        "a segment is a literal, `{{name}}`, `{{name}}:verb` or, at the end, `{{name...}}`; `{{` and `}}` stand nowhere else"
    )]
    BadPlaceholder,
    #[error("`{{name...}}` takes the rest, so nothing can follow it")]
    RestNotLast,
    #[error("a path has no query, no fragment, no space and no control character")]
    BadCharacter,
    #[error("`.` and `..` are no segments")]
    DotSegment,
    #[error("it is longer than {PATTERN_BYTES_MAX} bytes or {PATTERN_SEGMENTS_MAX} segments")]
    TooLong,
    #[error("a contract has at most {max} routes", max = super::ROUTES_MAX)]
    TooManyRoutes,
}

impl<'p> Pattern<'p> {
    pub(crate) fn parse(text: &'p str) -> Result<Self, PatternFault> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternFault::TooLong);
        }
        let (method, path) = text.split_once(' ').ok_or(PatternFault::NoMethod)?;
        let path = path.trim_start_matches(' ');
        let method = match method {
            "*" => MethodPattern::Any,
            m if !m.is_empty() && m.bytes().all(|b| b.is_ascii_uppercase() || b == b'-') => {
                MethodPattern::One(m.into())
            }
            _ => return Err(PatternFault::BadMethod),
        };
        let inner = path.strip_prefix('/').ok_or(PatternFault::NoSlash)?;
        if path.bytes().any(|b| b <= b' ' || matches!(b, b'?' | b'#' | 0x7f)) {
            return Err(PatternFault::BadCharacter);
        }
        let segments: Vec<_> = match inner {
            "" => Vec::new(),
            inner => inner.split('/').map(segment).collect::<Result<_, _>>()?,
        };
        if segments.len() > PATTERN_SEGMENTS_MAX {
            return Err(PatternFault::TooLong);
        }
        if segments.iter().rev().skip(1).any(|s| *s == Segment::Rest) {
            return Err(PatternFault::RestNotLast);
        }
        Ok(Self { method, path, segments })
    }

    /// The place of the segment that is named so.
    pub(crate) fn segment_named(&self, name: &str) -> Option<usize> {
        let is_named =
            |text: &str| text.strip_prefix('{').and_then(|t| t.split_once('}')).is_some_and(|(n, _)| n == name);
        self.path.strip_prefix('/')?.split('/').position(is_named)
    }

    pub(super) fn takes_rest(&self) -> bool {
        self.segments.last() == Some(&Segment::Rest)
    }
}

fn segment(text: &str) -> Result<Segment<'_>, PatternFault> {
    let is_name = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    match text {
        "" => Err(PatternFault::EmptySegment),
        "." | ".." => Err(PatternFault::DotSegment),
        _ if !text.contains(['{', '}']) => Ok(Segment::Literal(text)),
        _ => {
            let (name, verb) =
                text.strip_prefix('{').and_then(|t| t.split_once('}')).ok_or(PatternFault::BadPlaceholder)?;
            match (name.strip_suffix("..."), verb.strip_prefix(':')) {
                (Some(name), None) if is_name(name) && verb.is_empty() => Ok(Segment::Rest),
                (None, None) if is_name(name) && verb.is_empty() => Ok(Segment::One),
                (None, Some(word)) if is_name(name) && is_name(word) => Ok(Segment::Verb(verb)),
                _ => Err(PatternFault::BadPlaceholder),
            }
        }
    }
}
