//! An answer as a file has it: a status line whose last word names the provider, header lines, an empty line, the body.
//! What is no header is left out: the answer reached us through a reader that takes headers only.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use forbear_core::classify::ResponseFacts;
use forbear_core::contract::Contract;
use forbear_server::config::{known_contracts, load_text};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::NOW;

#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) status: u16,
    pub(super) provider: String,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Vec<u8>,
}

impl Recorded {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
        let body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        let mut lines = bytes[..end].split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let status = str::from_utf8(lines.next()?).ok()?;
        let mut words = status.split(' ').skip(1);
        let status = words.next()?.parse().ok().filter(|status| (100..=999).contains(status))?;
        let provider = words.last().unwrap_or_default().to_owned();
        Some(Self { status, provider, fields: lines.filter_map(field).collect(), body })
    }

    pub(super) fn contract(&self) -> &'static Contract {
        static KNOWN: OnceLock<BTreeMap<String, Contract>> = OnceLock::new();
        static PLAIN: OnceLock<Contract> = OnceLock::new();
        let known = KNOWN.get_or_init(|| known_contracts(&load_text("f", "").unwrap()));
        known.get(&self.provider).unwrap_or_else(|| PLAIN.get_or_init(Contract::default))
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.fields.iter().cloned().collect_map()
    }

    /// The same fields, those of different names the other way round; lines of one name stay as they are.
    pub(super) fn headers_reordered(&self) -> HeaderMap {
        let mut names: Vec<&HeaderName> = Vec::new();
        for (name, _) in &self.fields {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let of = |name| self.fields.iter().filter(move |(other, _)| other == name).cloned();
        names.into_iter().rev().flat_map(of).collect_map()
    }
}

/// A header map drops the lines of one name in its own `collect`.
trait CollectMap: Iterator<Item = (HeaderName, HeaderValue)> + Sized {
    fn collect_map(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.for_each(|(name, value)| _ = headers.append(name, value));
        headers
    }
}

impl<I: Iterator<Item = (HeaderName, HeaderValue)>> CollectMap for I {}

pub(super) fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|b| *b == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
}

pub(super) fn facts<'a>(status: u16, headers: &'a HeaderMap, body: Option<&'a [u8]>) -> ResponseFacts<'a> {
    ResponseFacts { status, headers, body, received: NOW }
}
